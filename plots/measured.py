"""What figures take from a profile: cold rows of the linear kernels, the memory roof, and averages over a flush cycle."""

from pathlib import Path

import style

COLUMNS = ["family", "k_heads", "v_heads", "k_dim", "v_dim", "state_dtype", "records", "batch", "buffer_length", "fill",
           "flush_rows", "tokens", "bytes", "l2", "time_us", "dram_read_bytes", "dram_write_bytes"]


def interpolate(times, fill):
    """Time at `fill` between the measured fills of {fill: time}; None outside them."""
    if fill in times:
        return times[fill]
    below = [f for f in times if f < fill]
    above = [f for f in times if f > fill]
    if not below or not above:
        return None
    low, high = max(below), min(above)
    return times[low] + (times[high] - times[low]) * (fill - low) / (high - low)


def cycle_us(plain, flush, length):
    """Average over a cycle of `length` tokens; plain and flush are {fill: time}. None where a part was not measured."""
    times = [interpolate(plain, fill) for fill in range(length - 1)] + [interpolate(flush, length - 1)]
    return None if None in times else sum(times) / length


def mean_us(plain, fills):
    """Average over `fills` of {fill: time}. None where one is neither measured nor between measured ones."""
    times = [interpolate(plain, fill) for fill in fills]
    return None if None in times else sum(times) / len(times)


def linear_rows(profile, form):
    """Cold rows of one form as dictionaries; none where the profile lacks the file."""
    path = Path(profile) / f"linear_{form}.csv"
    if not path.exists():
        return []
    return [row for row in style.read_csv(path, COLUMNS) if row["l2"] == "cold"]


# The append probe (kernels/traffic_stream.hpp), per value head: it reads an fp32 state of 128 x 128, and writes an output
# and u of 256 bytes each and half a key of 256.
HEAD_BYTES = 65536
APPENDED_BYTES = 640


def append_times(profile):
    """{value heads of a launch: us} of the append probe; empty where the profile lacks it."""
    path = Path(profile) / "stream_append.csv"
    if not path.exists():
        return {}
    rows = style.read_csv(path, ["bytes", "time_us", "l2"])
    return {int(row["bytes"]) / (HEAD_BYTES + APPENDED_BYTES): float(row["time_us"]) for row in rows if row["l2"] == "cold"}


class Roof:
    """What the stream probes reached, in bytes per us: at their best, and by size."""

    def __init__(self, profile):
        self.read = self._rates(profile, "stream_read")
        self.copy = self._rates(profile, "stream_copy")

    @staticmethod
    def _rates(profile, probe):
        rows = style.read_csv(Path(profile) / f"{probe}.csv", ["bytes", "time_us", "l2"])
        rates = {int(row["bytes"]): int(row["bytes"]) / float(row["time_us"]) for row in rows if row["l2"] == "cold"}
        if not rates:
            style.fail(f"{profile}/{probe}.csv: no cold rows")
        return dict(sorted(rates.items()))

    def floor_us(self, row):
        """Time of a row's counted DRAM bytes at the probes' best rates: what is written, and as much of what is read, at
        that of the copy, the rest at that of the read. None without counters."""
        if not row["dram_read_bytes"] or not row["dram_write_bytes"]:
            return None
        read, write = float(row["dram_read_bytes"]), float(row["dram_write_bytes"])
        copied = write + min(read, write)
        return copied / max(self.copy.values()) + (read + write - copied) / max(self.read.values())
