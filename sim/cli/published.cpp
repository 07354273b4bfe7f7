#include "sim/cli/published.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "sim/cli/table.hpp"
#include "sim/config/locate.hpp"
#include "sim/config/schema.hpp"

namespace kvsim {

DeviceSpec load_device(const std::string& name) {
    const ConfigFolders folders(std::filesystem::current_path() / "configs/experiments/-");
    const std::string file = folders.find(FileKind::kDevice, name, Place{}, "device");
    YamlReader reader;
    const YamlCursor root = reader.open(file, "device");
    DeviceSpec device;
    if (root.present()) device = read_device(root);
    reader.finish();
    return device;
}

std::string published_table(const std::vector<FamilyErrors>& errors) {
    using enum TextTable::Align;
    TextTable table({{"family", kLeft},
                     {"kernel", kLeft},
                     {"rows", kLeft},
                     {"number"},
                     {"median %"},
                     {"p90 %"},
                     {"worst %"}});
    const auto percent = [](double error) { return fmt::format("{:.2f}", 100.0 * error); };
    for (const FamilyErrors& e : errors) {
        for (const bool held : {false, true}) {
            const ErrorSummary& s = held ? e.held_out : e.fitted;
            table.add_row({e.family, e.kernel, held ? "held out" : "fitted", fmt::format("{}", s.rows),
                           percent(s.median), percent(s.p90), percent(s.worst)});
        }
    }
    return table.str();
}

std::string published_rows(const std::vector<FamilyErrors>& errors) {
    std::string csv = "family,file,line,held_out,measured_us,predicted_us\n";
    for (const FamilyErrors& e : errors) {
        for (const FamilyErrors::Row& row : e.rows) {
            csv += fmt::format("{},{},{},{},{:.4f},{:.4f}\n", e.family,
                               std::filesystem::path(row.place.file).filename().string(), row.place.line,
                               row.held_out, row.measured_us, row.predicted_us);
        }
    }
    return csv;
}

}  // namespace kvsim
