"""Serve a trained model over HTTP: JSON in and out, a page to try it, and a page of the schema.

It listens on 127.0.0.1, which only this machine can reach. Any other --host needs a token, from the
variable ENCODERY_SERVE_TOKEN or a file; clients send it as `Authorization: Bearer …`. Waiting requests are
answered in one batch. Nothing is logged or sent elsewhere. Press Ctrl-C to stop.
"""

import argparse
import sys
from typing import TYPE_CHECKING

from encodery.cli.parsing import Parser
from encodery.core.text import counted

if TYPE_CHECKING:
    import socket

    from encodery.serve.server import Address


def arguments(parser: Parser) -> None:
    """Which model, where, and how much of it."""
    parser.add_argument("model", metavar="RUN", help="run directory, model folder or hub name")
    parser.add_argument("--head", metavar="TASK", help="use the head of this task, if there are several")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; default 127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="port; 0 takes a free one; default 8000")
    parser.add_argument("--token-file", metavar="F", help="file with the token that clients must send")
    parser.add_argument("--onnx", nargs="?", const="int8", choices=["int8", "fp32"],
                        help="answer through ONNX Runtime, with 8-bit or float32 weights; CPU only")  # fmt: skip
    parser.add_argument(
        "--batch", type=int, default=64, metavar="N", help="maximum number of texts in a batch; default 64"
    )
    parser.add_argument(
        "--max-texts", type=int, default=256, metavar="N", help="maximum number of texts in a request; default 256"
    )
    parser.add_argument("--max-characters", type=int, default=50_000, metavar="N",
                        help="maximum number of characters in a text; default 50000")  # fmt: skip
    parser.add_argument("--max-waiting", type=int, default=256, metavar="N",
                        help="maximum number of waiting requests; more get 503; default 256")  # fmt: skip
    parser.add_argument("--threads", type=int, metavar="N", help="CPU threads for the model; default: all cores")
    parser.shared("--device", "--precision", "--allow-code")
    parser.no_verify()
    parser.examples(
        "encodery serve runs/reviews",
        "encodery serve runs/reviews --onnx --port 9000",
        "ENCODERY_SERVE_TOKEN=$(cat token) encodery serve runs/reviews --host 0.0.0.0",
        "curl -s 127.0.0.1:8000/predict -H 'Content-Type: application/json' -d '{\"text\": \"a film to remember\"}'",
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Open the model, listen, and answer until it is told to end."""
    from importlib.util import find_spec

    from encodery.errors import UserError
    from encodery.serve import server

    if not all(map(find_spec, ("fastapi", "uvicorn"))):
        raise UserError(server.NEEDED)
    for name in ("batch", "max_texts", "max_characters", "max_waiting"):
        if getattr(args, name) < 1:
            raise UserError(f"--{name.replace('_', '-')}: {getattr(args, name)} is not a positive number")
    if args.onnx and args.precision != "fp32":
        raise UserError(f"--precision {args.precision}: is for PyTorch; ONNX Runtime has --onnx fp32 and --onnx int8")
    address = server.Address(args.host, args.port, server.read_token(args.token_file))
    server.require_token(address)
    listening = server.open_socket(address)  # before the model is read: a port that is taken should be known at once
    with listening:
        return _serve(args, address, listening)


def _serve(args: argparse.Namespace, address: "Address", listening: "socket.socket") -> int:
    import torch

    from encodery.serve import server
    from encodery.serve.app import LOCAL, Limits, make_app
    from encodery.serve.batching import Batcher
    from encodery.serve.predictor import open_predictor

    if args.threads:
        torch.set_num_threads(args.threads)
    predictor = open_predictor(args.model, args.device, args.head, args.onnx, args.allow_code, args.precision)
    batcher = Batcher(predictor, args.batch, args.max_waiting)
    limits = Limits(args.max_texts, args.max_characters)
    hosts = {*LOCAL, address.host}
    app = make_app(predictor, batcher, limits, address.token, sorted(hosts))
    where = server.url(address, listening)

    def started() -> None:
        token = " A token is required." if address.token else ""
        print(f"{args.model} is served at {where} (page), {where}/docs (interface).{token} Press Ctrl-C to stop.")
        sys.stdout.flush()

    try:
        server.run_server(app, listening, started, connections=args.max_waiting + 64)
    finally:
        batcher.close()
    print(f"Stopped after {counted(batcher.requests, 'request')} with {counted(batcher.texts, 'text')}.")
    return 0
