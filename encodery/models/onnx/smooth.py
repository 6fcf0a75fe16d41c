"""Makes an ONNX file of an encoder ready for 8 bits: the same function, with numbers that lose less when rounded.

What a norm gives out has a few channels that are much larger than the others and lie on one side of zero. One scale for
all of them wastes most of the 256 steps. So each channel c of the input of a matrix product is moved to its middle and
divided by s_c, and the product's weights and bias take that back exactly:

    x W + b = ((x - m) / s) (s W) + (b + m W)      s_c = sqrt(largest |x_c - m_c| / largest |W_c|)

after Xiao et al. 2023 (SmoothQuant) and Wei et al. 2023 (Outlier Suppression+). m and s come from random tokens: no
text is needed. The products that read a wide hidden layer lose most: in the first layers, or in all, they stay as they
are.
Measured with 6 layers of width 384: all this raises the lowest cosine of sentence vectors from 0.97 to above 0.99.
"""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROWS, LENGTH = 16, 24  # of the random tokens
KEPT = 2  # one in so many of the products that narrow a wide layer stays in float32: the first ones
SMALLEST = 1e-5


class Group(NamedTuple):
    """Matrix products that read the same tensor, and how far its channels reach."""

    tensor: str
    products: list[Any]
    low: np.ndarray
    high: np.ndarray


def even_out(plain: Path, even: Path, vocabulary: int, closer: bool = False) -> list[str]:
    """Write the file again; the names of the products that should stay in float32 (`closer`: in all layers)."""
    import onnx

    model = onnx.load(plain)
    graph = model.graph
    weights = {part.name: onnx.numpy_helper.to_array(part) for part in graph.initializer}
    for group in groups(model, weights, vocabulary):
        _even(graph, group, weights)
    narrowing = [part.name for part in products(graph, weights) if narrows(weights[part.input[1]])]
    used = {name for node in graph.node for name in node.input}
    kept = [part for part in graph.initializer if part.name in used]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    onnx.save(model, even)
    return narrowing if closer else narrowing[: -(-len(narrowing) // KEPT)]


def products(graph: Any, weights: Mapping[str, np.ndarray]) -> list[Any]:
    """Products with a matrix that is known, in their order."""
    found = [node for node in graph.node if node.op_type == "MatMul" and node.input[1] in weights]
    return [node for node in found if weights[node.input[1]].ndim == 2]


def narrows(matrix: np.ndarray) -> bool:
    """Whether a product reads a hidden layer at least twice as wide as what it gives out."""
    return bool(matrix.shape[0] >= 2 * matrix.shape[1])


def groups(model: Any, weights: Mapping[str, np.ndarray], vocabulary: int) -> list[Group]:
    """What norms give out and products read; a matrix that several of them share (ALBERT) is left alone."""
    makers = {name: node.op_type for node in model.graph.node for name in node.output}
    readers: dict[str, list[Any]] = defaultdict(list)
    users: dict[str, set[str]] = defaultdict(set)
    for node in products(model.graph, weights):
        readers[node.input[0]].append(node)
        users[node.input[1]].add(node.input[0])
    chosen = {
        tensor: nodes
        for tensor, nodes in readers.items()
        if makers.get(tensor) == "LayerNormalization" and all(len(users[node.input[1]]) == 1 for node in nodes)
    }
    reach = channel_range(model, list(chosen), vocabulary) if chosen else {}
    return [Group(tensor, nodes, *reach[tensor]) for tensor, nodes in chosen.items()]


def channel_range(model: Any, tensors: list[str], vocabulary: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The smallest and largest value of each channel on random tokens."""
    import onnx
    import onnxruntime as ort

    open_ended = onnx.ModelProto()
    open_ended.CopyFrom(model)
    open_ended.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in tensors)
    options = ort.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    session = ort.InferenceSession(open_ended.SerializeToString(), options, providers=["CPUExecutionProvider"])
    ids = np.random.default_rng(0).integers(0, vocabulary, (ROWS, LENGTH))
    given = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    names = {one.name for one in session.get_inputs()}
    found = session.run(tensors, {name: value for name, value in given.items() if name in names})
    return {name: (x.min((0, 1)), x.max((0, 1))) for name, x in zip(tensors, found, strict=True)}


def _even(graph: Any, group: Group, weights: dict[str, np.ndarray]) -> None:
    """Insert (x - m) / s before the products of a group, and take it back in their weights and biases."""
    biases = [bias_of(graph, node, weights) for node in group.products]
    middle = (group.low + group.high) / 2 if all(biases) else np.zeros_like(group.low)
    reach = np.maximum(np.maximum(group.high - middle, middle - group.low), SMALLEST)
    largest = np.max([np.abs(weights[node.input[1]]).max(1) for node in group.products], 0)
    scale = np.sqrt(reach / np.maximum(largest, SMALLEST))
    scale /= np.exp(np.log(scale).mean())
    for node, bias in zip(group.products, biases, strict=True):
        matrix = weights[node.input[1]]
        if bias is not None:
            adds, place = bias
            adds.input[place] = _add(graph, f"{adds.input[place]}_even", weights[adds.input[place]] + middle @ matrix)
        node.input[1] = _add(graph, f"{node.input[1]}_even", matrix * scale[:, None])
        weights[node.input[1]] = matrix
    _insert(graph, group, 1 / scale, -middle / scale)


def bias_of(graph: Any, node: Any, weights: Mapping[str, np.ndarray]) -> tuple[Any, int] | None:
    """The one addition that reads a product, and where its bias stands."""
    readers = [one for one in graph.node if node.output[0] in one.input]
    if len(readers) != 1 or readers[0].op_type != "Add":
        return None
    place = 1 - list(readers[0].input).index(node.output[0])
    return (readers[0], place) if weights.get(readers[0].input[place], np.zeros((0, 0))).ndim == 1 else None


def _add(graph: Any, name: str, value: np.ndarray) -> str:
    import onnx

    graph.initializer.append(onnx.numpy_helper.from_array(np.ascontiguousarray(value, np.float32), name))
    return name


def _insert(graph: Any, group: Group, factor: np.ndarray, offset: np.ndarray) -> None:
    """x · factor + offset, read by the products of the group alone."""
    import onnx

    scaled, moved = f"{group.tensor}_scaled", f"{group.tensor}_even"
    times, plus = _add(graph, f"{scaled}_factor", factor), _add(graph, f"{moved}_offset", offset)
    nodes = [
        onnx.helper.make_node("Mul", [group.tensor, times], [scaled], name=scaled),
        onnx.helper.make_node("Add", [scaled, plus], [moved], name=moved),
    ]
    at = next(i for i, node in enumerate(graph.node) if group.tensor in node.output) + 1
    for node in reversed(nodes):
        graph.node.insert(at, node)
    for node in group.products:
        node.input[0] = moved
