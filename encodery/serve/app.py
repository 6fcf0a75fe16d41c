"""The HTTP interface: predict, model, version, health, a page to try it, and the schema as a page."""

import asyncio
import difflib
import hmac
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files as resources
from typing import Annotated, Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from starlette.exceptions import HTTPException

from encodery.core import environment, files
from encodery.core.text import counted
from encodery.errors import UserError
from encodery.serve.batching import Batcher, Closed, Failed, Full
from encodery.serve.predictor import Predictor
from encodery.tasks.base import Answer, Example
from encodery.tasks.sources.rows import half_character

OPEN = frozenset({"/", "/docs", "/health", "/assets/serve.css", "/assets/serve.js", "/assets/schema.js"})
KINDS = {"css": "text/css", "js": "text/javascript"}
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'"
HEADERS = {
    "Content-Security-Policy": POLICY + "; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
WORDS = {
    "Input should be a valid ": "expected a ", "Field required": "is missing",
    "Tuple should have at most": "expected at most", "string": "text",
}  # fmt: skip
SCHEME = re.compile(r"^bearer +", re.IGNORECASE)
FEWEST = 2  # candidates, among which a ranking model chooses
LOCAL = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Limits:
    """What one request may ask for, and how many may wait."""

    texts: int = 256
    characters: int = 50_000
    body: int = 8_000_000
    seconds: float = 60.0


def _without_halves(text: str) -> str:
    """JSON can spell what is no text."""
    if why := half_character(text):
        raise ValueError(f"{why}, which is no text")
    return text


AnyText = Annotated[str, AfterValidator(_without_halves)]


class PredictRequest(BaseModel):
    """One text, one pair, many texts, or many pairs: exactly one of these."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"text": "a film to remember"}]})

    text: AnyText | None = Field(None, description="A text; the question of a model that answers questions.")
    text2: AnyText | None = Field(None, description="The second text of a pair; the context of a question.")
    candidates: list[AnyText] | None = Field(None, description="Of a model that ranks: the texts to choose from.")
    texts: list[AnyText] | None = Field(None, description="Many texts.")
    pairs: list[tuple[AnyText, AnyText]] | None = Field(None, description="Many pairs of texts.")

    @model_validator(mode="after")
    def one_form(self) -> "PredictRequest":
        """Nothing is guessed."""
        if sum(value is not None for value in (self.text, self.texts, self.pairs)) != 1:
            raise ValueError("give exactly one of text, texts and pairs (null counts as not given)")
        if (self.text2 is not None or self.candidates is not None) and self.text is None:
            raise ValueError("text2 and candidates go with text")
        if self.text2 is not None and self.candidates is not None:
            raise ValueError("give text2 or candidates, not both")
        if self.candidates is not None and len(self.candidates) < FEWEST:
            raise ValueError(f"give at least {FEWEST} candidates")
        return self

    def examples(self) -> list[Example]:
        """As tasks see them."""
        if self.texts is not None:
            rows: Sequence[tuple[str, ...]] = [(text,) for text in self.texts]
        elif self.pairs is not None:
            rows = self.pairs
        else:
            more = self.candidates or ([] if self.text2 is None else [self.text2])
            rows = [(str(self.text), *more)]
        return [Example(str(i), tuple(texts)) for i, texts in enumerate(rows)]


class PredictResponse(BaseModel):
    """A prediction for each text, in order."""

    predictions: list[dict[str, Any]] = Field(
        description="`prediction`: a label, a list of labels or tags, a number, or an answer's text (empty: no "
        "answer); `probabilities` by label where the model has them."
    )


class Health(BaseModel):
    """Whether it answers."""

    status: str


class Version(BaseModel):
    """What answers."""

    encodery: str
    model: str


def make_app(
    predictor: Predictor, batcher: Batcher, limits: Limits, token: str | None, hosts: Sequence[str]
) -> FastAPI:
    """The application. Without a token only the named hosts are answered, which stops pages of other sites (DNS)."""
    app = FastAPI(
        title="encodery serve", version=environment.version(), docs_url=None, redoc_url=None,
        description="Predictions of one trained model.",
    )  # fmt: skip
    app.middleware("http")(_guard(token, hosts, limits))
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _refused)
    _pages(app)

    @app.get("/health", response_model=Health)
    async def health() -> Any:
        """Whether the server answers. Needs no token."""
        return {"status": "ok"}

    @app.get("/version", response_model=Version)
    async def version() -> Any:
        """The version of encodery, and the name of the model."""
        return {"encodery": environment.version(), "model": predictor.about()["name"]}

    @app.get("/model")
    async def model() -> Any:
        """Task, labels, lengths and the scores of the run; what the server has answered so far."""
        counts = {"requests": batcher.requests, "texts": batcher.texts, "batches": batcher.batches}
        return _json({**predictor.about(), "answered": counts})

    @app.post("/predict", response_model=PredictResponse)
    async def predict(request: PredictRequest) -> Any:
        """Predictions for one text or pair (`text`, `text2`), many texts (`texts`) or many pairs (`pairs`)."""
        examples = request.examples()
        _within(examples, limits)
        try:
            predictor.model.require_texts(examples)
        except UserError as error:
            raise HTTPException(422, str(error).partition(": ")[2] or str(error)) from None
        return _json({"predictions": await _answers(batcher, examples, limits)})

    return app


def _json(value: Any) -> Response:
    """NaN and infinities are null."""
    return Response(files.plain_json(value), media_type="application/json")


async def _answers(batcher: Batcher, examples: list[Example], limits: Limits) -> list[Answer]:
    """Wait for the model; a client that left is not waited for."""
    if not examples:
        return []
    try:
        future = batcher.submit(examples)
        return await asyncio.wait_for(asyncio.wrap_future(future), limits.seconds)
    except Full:
        raise HTTPException(503, "too many requests are waiting; try again later", {"Retry-After": "1"}) from None
    except TimeoutError:
        raise HTTPException(503, f"not answered within {limits.seconds:g} s", {"Retry-After": "5"}) from None
    except Closed:
        raise HTTPException(503, "the server is shutting down") from None
    except Failed as error:
        raise HTTPException(500, str(error)) from None
    except UserError as error:
        raise HTTPException(422, str(error)) from None


def _within(examples: Sequence[Example], limits: Limits) -> None:
    if len(examples) > limits.texts:
        raise HTTPException(413, f"{counted(len(examples), 'text')} in one request; the limit is {limits.texts}")
    longest = max((len(text) for example in examples for text in example.texts), default=0)
    if longest > limits.characters:
        raise HTTPException(413, f"a text of {longest} characters; the limit is {limits.characters}")


async def _invalid(_request: Request, error: Any) -> Response:
    """What is wrong with a body, without repeating it."""
    first = error.errors()[0]
    at = ".".join(str(part) for part in first["loc"][1:])
    if first["type"] == "json_invalid":
        return JSONResponse({"error": f"the body is not valid JSON (character {first['loc'][-1]})"}, 422)
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(at, PredictRequest.model_fields, n=1)
        sentence = f"unknown key {at}" + (f"; did you mean {near[0]}?" if near else "")
        return JSONResponse({"error": sentence}, 422)
    if first["type"] == "model_attributes_type":
        kinds = ", ".join(PredictRequest.model_fields)
        return JSONResponse({"error": f"the body must be a JSON object with {kinds}"}, 422)
    message = first["msg"].removeprefix("Value error, ")
    for theirs, ours in WORDS.items():
        message = message.replace(theirs, ours)
    return JSONResponse({"error": f"{at}: {message}" if at else message}, 422)


async def _refused(_request: Request, error: Any) -> Response:
    return JSONResponse({"error": error.detail}, error.status_code, headers=error.headers)


def _guard(token: str | None, hosts: Sequence[str], limits: Limits) -> Callable[..., Awaitable[Response]]:
    """Token, host, content type and size are checked before a body is read."""

    async def guard(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        refused = _refusal(request, token, hosts, limits)
        answer = refused or await call_next(request)
        answer.headers.update(HEADERS)
        return answer

    return guard


def _refusal(request: Request, token: str | None, hosts: Sequence[str], limits: Limits) -> Response | None:
    """Why a request is not answered; None if it is."""
    if token is None and (request.url.hostname or "") not in hosts:
        return JSONResponse({"error": "this server answers its own address only"}, 421)
    if token is not None and request.url.path not in OPEN:
        given = SCHEME.sub("", request.headers.get("authorization", ""))
        if not hmac.compare_digest(given.encode(), token.encode()):
            return JSONResponse({"error": "a token is required: Authorization: Bearer …"}, 401)
    if request.method != "POST":
        return None
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return JSONResponse({"error": "the body must be application/json"}, 415)
    length = request.headers.get("content-length", "")
    if not length.isdigit():
        return JSONResponse({"error": "Content-Length is required"}, 411)
    if int(length) > limits.body:
        return JSONResponse({"error": f"a body of {length} bytes; the limit is {limits.body}"}, 413)
    return None


def _pages(app: FastAPI) -> None:
    """The page, the schema as a page, and what they load: all from here, so that no network is needed."""
    assets = resources("encodery.serve") / "assets"
    pages = {name: (assets / name).read_text(encoding="utf-8") for name in
             ("page.html", "schema.html", "serve.css", "serve.js", "schema.js")}  # fmt: skip

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return HTMLResponse(pages["page.html"])

    @app.get("/docs", include_in_schema=False)
    async def schema() -> Response:
        return HTMLResponse(pages["schema.html"])

    @app.get("/assets/{name}", include_in_schema=False)
    async def asset(name: str) -> Response:
        if name not in pages or name.endswith(".html"):
            raise HTTPException(404, "no such file")
        return Response(pages[name], media_type=KINDS[name.rpartition(".")[2]])
