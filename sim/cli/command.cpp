#include "sim/cli/command.hpp"

#include <array>

namespace kvsim {

std::span<const Command> commands() {
    static constexpr std::array<Command, 11> kCommands{{
        {"run", "Simulate one experiment and print its metrics", declare_run},
        {"sweep", "Simulate every point of a sweep and write one row per point", declare_sweep},
        {"explain", "Take one step apart: bytes, FLOPs, time, bound and source of every operator",
         declare_explain},
        {"linear", "Take one linear layer by buffer length: bytes, and latency with a cold and a warm L2",
         declare_linear},
        {"capacity", "How many requests fit on the device, and which limit binds", declare_capacity},
        {"fit", "Fit the parameters of a measured profile and write its fit.yaml", declare_fit},
        {"fit-tables", "Fit the laws of operators to published tables and write their published.yaml",
         declare_fit_tables},
        {"validate", "Compare a profile's fit with the rows that it never saw", declare_validate},
        {"validate-steps", "Compare prices of whole steps with steps that others measured",
         declare_validate_steps},
        {"model", "Show what a model is made of, or import one from Hugging Face", declare_model},
        {"list", "What can be named in a configuration, and the columns of the files", declare_list},
    }};
    return kCommands;
}

}  // namespace kvsim
