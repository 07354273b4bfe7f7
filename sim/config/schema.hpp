// The kinds of configuration as YAML, one .cpp each, in which reader and writer of a kind stand side by side.
// Readers note mistakes with the cursor's reader; what they return counts only after YamlReader::finish().
#pragma once

#include <string>

#include "sim/config/experiment.hpp"
#include "sim/config/yaml.hpp"

namespace YAML {
class Emitter;
}

namespace kvsim {

// Schema numbers other than 1: `schema: kvsim/model/2`.
inline constexpr int kModelSchema = 2;

ModelSpec read_model(const YamlCursor& map);
DeviceSpec read_device(const YamlCursor& map);
EngineSpec read_engine(const YamlCursor& map);
EngineMemory read_engine_memory(const YamlCursor& map);  // a section of it
SchedulerSpec read_scheduler(const YamlCursor& map);     // another; without one the defaults
WorkloadSpec read_workload(const YamlCursor& map);
// `state` is the format where the map names none: the model's own.
LinearServing read_linear(const YamlCursor& map, StateFormat state);
// Keys of an experiment; most need arrivals and are refused without.
ServingSpec read_serving(const YamlCursor& experiment, bool arrivals);

// Each writes one map that its reader reads back.
void write_model(YAML::Emitter& out, const ModelSpec& model);
void write_device(YAML::Emitter& out, const DeviceSpec& device);
void write_engine(YAML::Emitter& out, const EngineSpec& engine);
void write_engine_memory(YAML::Emitter& out, const EngineMemory& memory);
void write_scheduler(YAML::Emitter& out, const SchedulerSpec& scheduler);
void write_workload(YAML::Emitter& out, const WorkloadSpec& workload);
void write_linear(YAML::Emitter& out, const LinearServing& linear);
// Keys of the map that is being written.
void write_serving(YAML::Emitter& out, const ServingSpec& serving, bool arrivals);

// A name that may become a folder: letters, digits, '.', '_' and '-', not starting with '.'.
std::string read_name(const YamlCursor& value);

// The shortest text that reads back as the same double.
std::string shortest(double value);

}  // namespace kvsim
