"""How long ONNX files take: transformer-shaped graphs of 1k to 1M nodes read, written and inspected, beside the field's tools.

    TWINFORGE=build/release/cli/twinforge python3 bench/onnx_scale.py [--most NODES] [--write docs/onnx.md]

Graphs are made here, with the operators, constants and initializers that exporters write for a layer: norm in primitives,
three projections, heads split and joined by Reshape and Transpose, scores, mask, softmax, gated MLP; 64 nodes a layer. Peers
that are not installed are said to be missing. A figure is the best of three runs up to 100k nodes, of one above; beside the
seconds that passed those of a processor, which a busy machine does not change.
Also: one weight of a 40 GiB sparse file changed, in time, memory, bytes written and blocks.
"""
import argparse
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

TOOL = os.environ.get("TWINFORGE", "build/release/cli/twinforge")
BEGIN, END = "<!-- bench/onnx_scale.py writes from here -->", "<!-- to here: bench/onnx_scale.py -->"
WIDTH = 8


def varint(value):
    text = bytearray()
    while value >= 0x80:
        text.append(value & 0x7f | 0x80)
        value >>= 7
    return bytes(text) + bytes([value])


def field(number, content):
    content = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(content)) + content


def number(at, value):
    return varint(at << 3) + varint(value & (1 << 64) - 1)


def tensor(name, kind, dims, raw):
    return b"".join(number(1, d) for d in dims) + number(2, kind) + (field(8, name) if name else b"") + field(9, raw)


def integers(values):
    return tensor("", 7, [len(values)], b"".join(v.to_bytes(8, "little", signed=True) for v in values))


class Maker:
    """A GraphProto, field by field: a million messages of Python's protobuf would take minutes."""

    def __init__(self):
        self.nodes, self.initializers, self.made = [], [], 0

    def node(self, op, inputs, name, *attributes):
        self.nodes.append(field(1, b"".join(field(1, i) for i in inputs) + field(2, name) + field(3, "/" + name) + field(4, op) + b"".join(field(5, a) for a in attributes)))
        return name

    def constant(self, values, name):
        return self.node("Constant", [], name, field(1, "value") + field(5, integers(values)) + number(20, 4))

    def weight(self, name, *dims):
        count = 1
        for d in dims:
            count *= d
        self.initializers.append(field(5, tensor(name, 1, dims, bytes(4 * count))))
        return name

    def norm(self, x, at):
        squares = self.node("Mul", [x, x], f"{at}/sq")
        mean = self.node("ReduceMean", [squares, self.constant([-1], f"{at}/ax")], f"{at}/mean", field(1, "keepdims") + number(3, 1) + number(20, 2))
        root = self.node("Sqrt", [self.node("Add", [mean, "eps"], f"{at}/e")], f"{at}/rt")
        return self.node("Mul", [self.node("Div", [x, root], f"{at}/n"), self.weight(f"{at}/g", WIDTH)], f"{at}/o")

    def heads(self, x, at):
        y = self.node("MatMul", [x, self.weight(f"{at}/w", WIDTH, WIDTH)], f"{at}/mm")
        y = self.node("Add", [y, self.weight(f"{at}/b", WIDTH)], f"{at}/bias")
        shape = self.node("Concat", [self.node("Unsqueeze", [self.node("Gather", [self.node("Shape", [y], f"{at}/sh"), "zero"], f"{at}/b0"), self.constant([0], f"{at}/u")],
                                               f"{at}/un"), self.constant([-1, 2, WIDTH // 2], f"{at}/tail")], f"{at}/shape", field(1, "axis") + number(3, 0) + number(20, 2))
        perm = field(1, "perm") + b"".join(number(8, p) for p in (0, 2, 1, 3)) + number(20, 7)
        return self.node("Transpose", [self.node("Reshape", [y, shape], f"{at}/rs")], f"{at}/tr", perm)

    def layer(self, x, at):
        h = self.norm(x, f"{at}/n1")
        q, k, v = (self.heads(h, f"{at}/{name}") for name in "qkv")
        kt = self.node("Transpose", [k], f"{at}/kt", field(1, "perm") + b"".join(number(8, p) for p in (0, 1, 3, 2)) + number(20, 7))
        scores = self.node("Mul", [self.node("MatMul", [q, kt], f"{at}/qk"), "scale"], f"{at}/sc")
        p = self.node("Softmax", [scores], f"{at}/p", field(1, "axis") + number(3, -1) + number(20, 2))
        o = self.node("Transpose", [self.node("MatMul", [p, v], f"{at}/pv")], f"{at}/ot", field(1, "perm") + b"".join(number(8, p) for p in (0, 2, 1, 3)) + number(20, 7))
        o = self.node("Reshape", [o, self.constant([0, -1, WIDTH], f"{at}/j")], f"{at}/joined")
        x = self.node("Add", [x, self.node("MatMul", [o, self.weight(f"{at}/wo", WIDTH, WIDTH)], f"{at}/out")], f"{at}/r1")
        h = self.norm(x, f"{at}/n2")
        gate = self.node("MatMul", [h, self.weight(f"{at}/wg", WIDTH, WIDTH)], f"{at}/gate")
        act = self.node("Mul", [gate, self.node("Sigmoid", [gate], f"{at}/sig")], f"{at}/act")
        up = self.node("MatMul", [h, self.weight(f"{at}/wu", WIDTH, WIDTH)], f"{at}/up")
        down = self.node("MatMul", [self.node("Mul", [act, up], f"{at}/gu"), self.weight(f"{at}/wd", WIDTH, WIDTH)], f"{at}/down")
        return self.node("Add", [x, down], f"{at}/r2")

    def model(self, nodes):
        self.initializers += [field(5, tensor("eps", 1, [], b"\0\0\x80\x35")), field(5, tensor("scale", 1, [], b"\0\0\0\x3f")), field(5, tensor("zero", 7, [], bytes(8)))]
        x = "x"
        while len(self.nodes) < nodes:
            x = self.layer(x, f"model/layers.{self.made}")
            self.made += 1
        value = field(2, field(1, number(1, 1) + field(2, field(1, field(2, "batch")) + field(1, field(2, "sequence")) + field(1, number(1, WIDTH)))))
        graph = b"".join(self.nodes) + field(2, "main") + b"".join(self.initializers) + field(11, field(1, "x") + value) + field(12, field(1, x) + value)
        return number(1, 8) + field(2, "bench") + field(7, graph) + field(8, number(2, 18))


# Run by a small process of its own: a child's peak begins with what its parent held when it was started.
MEASURE = """import resource, subprocess, sys, time
began = time.monotonic()
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(time.monotonic() - began, usage.ru_maxrss * 1024, usage.ru_utime + usage.ru_stime)
sys.exit(done.stderr.decode(errors="replace").strip().splitlines()[-1][:200] if done.returncode else 0)"""


def measured(words):
    """Seconds, peak bytes and seconds of a processor; what a program said that failed is raised."""
    done = subprocess.run([sys.executable, "-S", "-c", MEASURE, *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    seconds, peak, processor = done.stdout.split()
    return float(seconds), int(peak), float(processor)


def best(words, runs, before=lambda: None):
    taken = []
    for _ in range(runs):
        before()
        taken.append(measured(words))
    return min(taken)


PEERS = {
    "onnxruntime": ("onnxruntime", "import sys, onnxruntime as r; o = r.SessionOptions(); o.log_severity_level = 3; o.graph_optimization_level = r.GraphOptimizationLevel.ORT_DISABLE_ALL; "
                    "r.InferenceSession(sys.argv[1], o, providers=['CPUExecutionProvider'])"),
    "onnxslim": ("onnxslim", "import sys, onnxslim; onnxslim.slim(sys.argv[1], sys.argv[2])"),
    "onnxsim": ("onnxsim", "import sys, onnx, onnxsim; m, ok = onnxsim.simplify(sys.argv[1]); onnx.save(m, sys.argv[2])"),
}
PEER_LIMIT = {"onnxruntime": 100_000, "onnxslim": 10_000, "onnxsim": 10_000}   # beyond, minutes to hours


def fit(points):
    """R² of y as a line in x."""
    n = len(points)
    mx, my = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
    sxy, sxx, syy = sum((x - mx) * (y - my) for x, y in points), sum((x - mx) ** 2 for x, _ in points), sum((y - my) ** 2 for _, y in points)
    return sxy * sxy / (sxx * syy)


def title(peer):
    module = PEERS[peer][0]
    found = importlib.util.find_spec(module) is not None
    return f"{peer} {importlib.metadata.version(module)}{' opens it' if peer == 'onnxruntime' else ''}" if found else peer


def cell(result):
    return f"{result[0]:.2f} s ({result[2]:.2f}), {result[1] / 2**20:,.0f} MiB" if isinstance(result, tuple) else result


def graphs(scratch, most):
    rows, points = [], []
    for nodes in (1_000, 10_000, 100_000, 1_000_000):
        if nodes > most:
            continue
        maker = Maker()
        path = scratch / "m.onnx"
        path.write_bytes(maker.model(nodes))
        runs = 3 if nodes <= 100_000 else 1

        def gone():
            for file in (scratch / "out").glob("*"):
                file.unlink()
            if (scratch / "out").exists():
                (scratch / "out").rmdir()
        results = {"inspect": best([TOOL, "inspect", path], runs), "export": best([TOOL, "export", path, "--to", "onnx", "--out", scratch / "out"], runs, gone),
                   "store": best([TOOL, "export", path, "--to", "onnx", "--store", "model/.*=bf16", "--out", scratch / "out"], runs, gone)}
        gone()
        for peer, (module, text) in PEERS.items():
            if importlib.util.find_spec(module) is None:
                results[peer] = "not installed"
            elif nodes > PEER_LIMIT[peer]:
                results[peer] = "not run"
            else:
                try:
                    results[peer] = measured([sys.executable, "-c", text, path, scratch / "peer.onnx"])
                except RuntimeError as failed:
                    results[peer] = f"fails: {failed}"
        points.append((len(maker.nodes), results["export"][2]))
        rows.append((len(maker.nodes), path.stat().st_size, results))
        print(rows[-1], flush=True)
    return rows, points


def sparse(scratch):
    """A model of forty tensors of 1 GiB, all holes but a megabyte each; the one in the middle is stored as bf16."""
    gib = 1 << 30
    names = [f"w{k}" for k in range(40)]
    entry = lambda key, value: field(13, field(1, key) + field(2, str(value)))  # noqa: E731
    outside = [field(5, number(1, gib // 4) + number(2, 1) + field(8, name) + entry("location", "w.bin") + entry("offset", k * gib) + entry("length", gib) + number(14, 1))
               for k, name in enumerate(names)]
    nodes = [field(1, field(1, name) + field(2, f"y{k}") + field(4, "Identity")) for k, name in enumerate(names)]
    (scratch / "big").mkdir()
    path = scratch / "big" / "m.onnx"
    path.write_bytes(number(1, 8) + field(7, b"".join(nodes) + field(2, "g") + b"".join(outside) + field(12, field(1, "y0"))) + field(8, number(2, 18)))
    with open(scratch / "big" / "w.bin", "wb") as file:
        file.truncate(40 * gib)
        for k in range(40):
            file.seek(k * gib)
            file.write(b"\x3f" * (1 << 20))
    seconds, peak, _ = measured([TOOL, "export", path, "--to", "onnx", "--store", "w20=bf16", "--out", scratch / "changed"])
    stat = (scratch / "changed" / "w.bin").stat()
    return (f"A 40 GiB data file of holes with 1 MiB of numbers in each of 40 tensors, one of which is stored as bf16: {seconds:.1f} s, "
            f"{peak / 2**20:,.0f} MiB at the peak, {stat.st_blocks * 512 / 2**20:,.0f} MiB of blocks in a file of {stat.st_size / gib:.0f} GiB.")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--most", type=int, default=1_000_000)
    parser.add_argument("--dir", default=None)
    parser.add_argument("--write", type=Path)
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=flags.dir) as folder:
        scratch = Path(folder)
        rows, points = graphs(scratch, flags.most)
        large = sparse(scratch)
    lines = ["| nodes | file | `inspect` | `export` | every weight stored as bf16 | " + " | ".join(map(title, PEERS)) + " |",
             "| --- | --- | --- | --- | --- | " + " | ".join("---" for _ in PEERS) + " |"]
    for nodes, size, results in rows:
        lines.append(f"| {nodes:,} | {size / 2**20:.1f} MiB | " + " | ".join(cell(results[k]) for k in ("inspect", "export", "store", *PEERS)) + " |")
    lines += ["", f"Processor time of `export` as a line in nodes: R² = {fit(points):.4f}." if len(points) > 2 else "", large]
    text = "\n".join(lines)
    print(text)
    if flags.write:
        page = flags.write.read_text()
        flags.write.write_text(page.split(BEGIN)[0] + BEGIN + "\n" + text + "\n" + END + page.split(END)[1])


if __name__ == "__main__":
    main()
