"""Runs the built kvsim (path in $KVSIM) as a user would, in an empty folder, with a small made-up profile."""

import csv
import json
import math
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
KVSIM = os.environ["KVSIM"]
CONV_TRACE = ROOT.parent / "shared/traces/azure2023/AzureLLMInferenceTrace_conv.csv"

EXPERIMENT = """\
schema: kvsim/experiment/1
name: small
model: qwen3.5-35b-a3b
device: h200
engine: sglang
linear: {{form: buffered, buffer_length: 16, state_dtype: fp32}}
workload: {{kind: steady, batch: 32, context: 1024, steps: 32}}
profile_dir: {profile}
"""

TRACE = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:47.0000000,100,1
2023-11-16 18:15:50.2345678,2000,20
"""

COLUMNS = ("kernel,family,form,k_heads,v_heads,k_dim,v_dim,state_dtype,records,batch,buffer_length,fill,buffered_tokens,"
           "flush_rows,tokens,bytes,l2,sets,time_us,time_min_us,time_max_us,repeats,launches,cupti_us,dram_read_bytes,"
           "dram_write_bytes,sm_mhz,clock_limit,verified,max_error").split(",")

# The made-up GPU: every transfer at 4000 GB/s, beside a latency of 2 us, of which half is not hidden.
NODE_US = 0.5
LATENCY_US = 2.0
SERIAL = 0.5
BYTES_PER_US = 4e6

# Its buffered kernels (the laws of sim/cost/law.hpp). Small, up to 96 rows and 32 records: microseconds per 16 records read
# and folded, alone and on a full chip; heads in flight at once; states written among rows that only read; writes hidden.
RECORD_US = 0.05
FOLD_US = 0.1
FULL_FOLD_US = 0.2
HEADS_IN_FLIGHT = 200
TURN_BYTES_PER_US = 8e6
HIDDEN = 0.25

# Pipelined: a tile of a head's four, and what 16 records add where they are read and folded, on 132 multiprocessors; a
# tile alone takes five times as long, after its load. Stages: tiles in flight of whole heads, and of single tiles.
START_US = 4.0
TILE_US, CHUNK_US, FOLD_TILE_US, FOLD_CHUNK_US = 0.08, 0.05, 0.07, 0.2
ALONE, LOAD_US, UNIT_US, BUNCHING = 5.0, 1.0, 0.3, 0.6
READ_SHARE = 0.9
STAGES = {16: (10, 5), 64: (7, 3)}

# Qwen3.5-35B-A3B, per layer, request and token (facts of the model: 16 key and 32 value heads of 128 channels).
STATE_BYTES = 32 * 128 * 128 * 4
RECORD_BYTES = 2 * 32 * 128 + 2 * 16 * 128 + 4 * 32
OUTPUT_BYTES = 2 * 32 * 128
TOKEN_BYTES = 2 * (2 * 16 * 128 + 32 * 128) + 2 * 2 * 32 + OUTPUT_BYTES  # q, k, v, gates in; o out
LINEAR_LAYERS = 30


def soft_max(a, b):
    return 0.5 * (a + b + math.sqrt((a - b) ** 2 + 4 * SERIAL * a * b))


def launch_us(size):
    """Time of a launch that moves `size` bytes on the made-up GPU."""
    return NODE_US + soft_max(LATENCY_US, size / BYTES_PER_US)


def buffered_us(batch, buffered_tokens, flush_rows, folds, length):
    """Time of a launch of its buffered kernels; rows that flush fold `folds` records each."""
    kernel = small_us if length <= 32 else pipelined_us
    return kernel(batch, buffered_tokens, flush_rows, folds, length)


def record_chunks(records):
    return max(min(records, 1), records / 16)


def small_us(batch, buffered_tokens, flush_rows, folds, _):
    flush_share = flush_rows / batch
    block = LATENCY_US + RECORD_US * record_chunks(buffered_tokens / batch)
    folded = math.ceil(folds / 16) if flush_rows else 0
    last_block = block + FOLD_US * folded
    occupancy = batch * 32 / HEADS_IN_FLIGHT * (block + flush_share * FULL_FOLD_US * folded)
    write_us = written_bytes(batch, flush_rows) / BYTES_PER_US
    transfer = (buffered_bytes(batch, buffered_tokens, flush_rows) / BYTES_PER_US
                - min(write_us, HIDDEN * last_block))
    turns = flush_rows * (1 - flush_share) * STATE_BYTES / TURN_BYTES_PER_US
    bunching = math.sqrt(flush_rows * (1 - flush_share)) * STATE_BYTES / BYTES_PER_US
    return NODE_US + last_block + soft_max(transfer, occupancy) + turns + bunching


def pipelined_us(batch, buffered_tokens, flush_rows, folds, length):
    records = buffered_tokens / batch
    flush_share = flush_rows / batch
    plain = TILE_US + CHUNK_US * record_chunks(records)
    fold = FOLD_TILE_US + FOLD_CHUNK_US * math.ceil(folds / 16) if flush_rows else 0
    busy = plain + flush_share * fold
    hold = LOAD_US + ALONE * busy
    heads = batch * 32
    rounds = heads // 132
    whole = 0 if rounds < 4 else rounds - 1  # of heads; what is left goes in tiles
    single = math.ceil((heads - whole * 132) * 4 / 132)
    whole_ahead, single_ahead = STAGES[length]
    occupancy = (4 * whole * max(busy, hold / whole_ahead) + (single - 1) * max(busy, hold / single_ahead)
                 + UNIT_US * (whole + single))
    written = written_bytes(batch, flush_rows)
    read = buffered_bytes(batch, buffered_tokens, flush_rows) - written
    transfer = (read / READ_SHARE + written) / BYTES_PER_US
    bunching = BUNCHING * math.sqrt(flush_share * (1 - flush_share) * heads / 132) * ALONE * fold
    return NODE_US + START_US + ALONE * (plain + fold) + soft_max(transfer, occupancy) + bunching


def recurrent_bytes(batch):
    return batch * (2 * STATE_BYTES + TOKEN_BYTES)


def written_bytes(batch, flush_rows):
    return flush_rows * STATE_BYTES + batch * (RECORD_BYTES + OUTPUT_BYTES)


def buffered_bytes(batch, buffered_tokens, flush_rows):
    return (batch * (STATE_BYTES + RECORD_BYTES + TOKEN_BYTES) + flush_rows * STATE_BYTES
            + buffered_tokens * RECORD_BYTES)


def write_profile(folder):
    """Rows of the made-up GPU, exact, as kvcalib would have measured them."""
    folder.mkdir()

    def write(kernel, rows):
        with open(folder / f"{kernel}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
            writer.writeheader()
            for row in rows:
                writer.writerow({"kernel": kernel, "repeats": 9, "launches": 64, "verified": "true", "l2": "cold", **row})

    sizes = [2 ** n for n in range(17, 33)]
    batches = [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512]
    layer = {"family": "gdn", "k_heads": 16, "v_heads": 32, "k_dim": 128, "v_dim": 128, "state_dtype": "fp32", "tokens": 1}
    write("empty", [{"time_us": NODE_US, "l2": ""}])
    for probe in ("stream_copy", "stream_read"):
        write(probe, [{"bytes": size, "time_us": launch_us(size)} for size in sizes])
    write("linear_recurrent", [{**layer, "form": "recurrent", "batch": b, "time_us": launch_us(recurrent_bytes(b))}
                               for b in batches])
    write("linear_buffered",
          [{**layer, "form": "buffered", "records": "bf16", "batch": b, "buffer_length": m, "fill": fill, "buffered_tokens": b * fill,
            "flush_rows": flush, "time_us": buffered_us(b, b * fill, flush, fill + 1, m)}
           for b in batches for m, fills in ((16, range(16)), (64, (0, 31, 63))) for fill in fills for flush in sorted({0, (b + 3) // 4, b})])


class CliTest(unittest.TestCase):
    """A test with an empty folder, which is the working directory of kvsim, and in it experiment.yaml."""

    @classmethod
    def setUpClass(cls):
        shared = tempfile.TemporaryDirectory()
        cls.addClassCleanup(shared.cleanup)
        cls.profile = Path(shared.name) / "profile"
        write_profile(cls.profile)
        subprocess.run([KVSIM, "fit", str(cls.profile)], check=True, stdout=subprocess.DEVNULL)

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.write("experiment.yaml", EXPERIMENT.format(profile=self.profile))

    def write(self, name, text):
        path = self.folder / name
        path.write_bytes(text.encode())
        return path

    def kvsim(self, *arguments, code=0):
        """Runs kvsim and checks its exit code."""
        result = subprocess.run([KVSIM, *map(str, arguments)], cwd=self.folder, capture_output=True, text=True,
                                timeout=120)
        self.assertEqual(result.returncode, code, f"{arguments}\nstdout: {result.stdout}\nstderr: {result.stderr}")
        return result

    def json(self, *arguments):
        result = self.kvsim(*arguments, "--json")
        self.assertEqual(result.stderr, "")
        return json.loads(result.stdout)

    def refused(self, *arguments, says):
        """Bad input: exit code 2, nothing on stdout, every text of `says` in the message, and no new file or folder."""
        before = sorted(self.folder.rglob("*"))
        result = self.kvsim(*arguments, code=2)
        self.assertEqual(result.stdout, "")
        for text in says:
            self.assertIn(text, result.stderr)
        self.assertEqual(sorted(self.folder.rglob("*")), before)
        return result.stderr

    def rows(self, folder):
        with open(self.folder / folder / "runs.csv", newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))


def skipped(reason):
    print(f"SKIPPED: {reason}", file=sys.stderr)
