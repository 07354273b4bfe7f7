#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "sim/config/locate.hpp"
#include "sim/config/schema.hpp"

namespace kvsim {

namespace {

constexpr std::size_t kMaxPoints = 100'000;

struct AxisValue {
    std::string text;
    Place place;
};

struct Axis {
    std::string key;
    std::vector<AxisValue> values;
};

Axis read_axis(const YamlCursor& map, std::set<std::string>& keys) {
    Axis axis;
    const YamlCursor key = map.at("key");
    axis.key = key.string();
    if (!axis.key.empty() && !keys.insert(axis.key).second) {
        key.mistake(fmt::format("`{}` is the key of an axis above", axis.key));
    }
    // Setting a part anew forgets what was set inside it: the rows would carry labels that did nothing.
    for (const std::string& other : keys) {
        if (other.starts_with(axis.key + "."))
            key.mistake(fmt::format("`{}` would undo the axis `{}` above; put it first", axis.key, other));
    }
    std::set<std::string> texts;
    for (const YamlCursor& item : map.at("values").items(1)) {
        const std::string text = item.string();
        if (!text.empty() && !texts.insert(text).second)
            item.mistake(fmt::format("`{}` is given twice", text));
        axis.values.push_back({text, item.place()});
    }
    return axis;
}

// Every combination, the last axis fastest.
std::vector<SweepPoint> expand(const std::vector<Axis>& axes) {
    std::vector<SweepPoint> points(1);
    for (const Axis& axis : axes) {
        std::vector<SweepPoint> longer;
        for (const SweepPoint& point : points) {
            for (const AxisValue& value : axis.values) {
                longer.push_back(point);
                longer.back().assignments.emplace_back(axis.key, value.text);
            }
        }
        points = std::move(longer);
    }
    return points;
}

// Loads every point. A mistake that a swept value makes is placed at that value, and each mistake is said
// once.
void check_points(const Sweep& sweep, const std::vector<Axis>& axes, YamlReader& reader) {
    std::map<std::string, Place> value_places;
    for (const Axis& axis : axes) {
        for (const AxisValue& value : axis.values) {
            value_places[override_place(axis.key, value.text).file] = value.place;
        }
    }
    std::set<std::string> said;
    for (const SweepPoint& point : sweep.points) {
        try {
            load_experiment(sweep.experiment_file, point.assignments);
        } catch (const ConfigError& error) {
            for (Mistake mistake : error.mistakes()) {
                std::string text = format_mistake(mistake);
                if (const auto place = value_places.find(mistake.place.file); place != value_places.end()) {
                    // Without its place: an unknown key is the same mistake for every value of its axis.
                    text = mistake.path + mistake.message;
                    mistake.place = place->second;
                }
                if (said.insert(std::move(text)).second) reader.note(std::move(mistake));
            }
        }
    }
}

}  // namespace

Sweep load_sweep(const std::string& file) {
    YamlReader reader;
    const YamlCursor root = reader.open(file, "sweep");
    Sweep sweep;
    sweep.name = read_name(root.at("name"));
    const YamlCursor experiment = root.at("experiment");
    if (!experiment.string().empty()) {
        try {
            sweep.experiment_file = ConfigFolders(file).find(FileKind::kExperiment, experiment.string(),
                                                             experiment.place(), "experiment");
        } catch (const ConfigError& error) {
            reader.note(error);
        }
    }
    std::set<std::string> keys;
    std::vector<Axis> axes;
    std::size_t count = 1;
    const YamlCursor list = root.at("axes");
    for (const YamlCursor& map : list.items(1)) {
        axes.push_back(read_axis(map, keys));
        sweep.axes.push_back(axes.back().key);
        count *= std::min(axes.back().values.size(), kMaxPoints + 1);
        if (count > kMaxPoints) {
            list.mistake(fmt::format("expected at most {} points", kMaxPoints));
            break;
        }
    }
    reader.finish();
    sweep.points = expand(axes);
    check_points(sweep, axes, reader);
    reader.finish();
    return sweep;
}

}  // namespace kvsim
