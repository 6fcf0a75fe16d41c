"""ELECTRA's span head: the layers, and the class under which transformers' Auto classes open a folder with them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AutoModel, AutoModelForQuestionAnswering, PreTrainedModel
from transformers.utils import ModelOutput

from encodery.data.layouts import upcast
from encodery.models.pretrained import from_config
from encodery.objectives.parts.own_configs import JointSpanConfig

FORBIDDEN = -1e4  # added to the logits of tokens that cannot be an answer: their probability is 0 in float32
PREFIX = "joint"  # how the head's weights are called in a saved folder


def masked(logits: Tensor, allowed: Tensor) -> Tensor:
    """Logits in which tokens that cannot be chosen have a value that no softmax sees."""
    return torch.where(allowed, upcast(logits), FORBIDDEN)


class JointHead(nn.Module):
    """Start; end given the start; no answer. All layers are Glorot uniform with bias 0, without dropout."""

    def __init__(self, width: int, inner: int):
        super().__init__()
        self.start = nn.Linear(width, 1)
        self.end_from_start, self.end_from_token = nn.Linear(width, inner, bias=False), nn.Linear(width, inner)
        self.end = nn.Linear(inner, 1)
        self.gist, self.impossible = nn.Linear(2 * width, inner), nn.Linear(inner, 1)
        self.reset()

    def reset(self) -> None:
        width, inner = self.end_from_token.in_features, self.end_from_token.out_features
        bound = (6 / (2 * width + inner)) ** 0.5  # Glorot's for the whole matrix [H_start; H_t]
        for layer in (self.end_from_start, self.end_from_token):
            nn.init.uniform_(layer.weight, -bound, bound)
        for layer in (self.start, self.end, self.gist, self.impossible):
            nn.init.xavier_uniform_(layer.weight)
        for layer in (self.start, self.end_from_token, self.end, self.gist, self.impossible):
            nn.init.zeros_(layer.bias)

    def starts(self, rows: Tensor, allowed: Tensor) -> Tensor:
        """Start logits [n, L] of hidden states [n, L, h]."""
        return masked(self.start(rows)[..., 0], allowed)

    def null(self, rows: Tensor, starts: Tensor) -> Tensor:
        """The logit of no answer [n], from the first token and the mean of the tokens that may be the start."""
        gist = torch.einsum("nl,nlh->nh", starts.softmax(1).to(rows.dtype), rows)
        return upcast(self.impossible(F.gelu(self.gist(torch.cat([rows[:, 0], gist], 1))))[:, 0])

    def ends(self, rows: Tensor, starts: Tensor, allowed: Tensor) -> Tensor:
        """End logits [n, starts, L] after each of the starts [n, starts]."""
        chosen = rows.gather(1, starts[..., None].expand(-1, -1, rows.shape[2]))
        first, token = self.end_from_start(chosen), self.end_from_token(rows)
        each = [self.end(F.gelu(first[:, k, None] + token))[..., 0] for k in range(starts.shape[1])]
        return torch.stack([masked(one, allowed) for one in each], 1)

    def best(self, rows: Tensor, starts: Tensor, allowed: Tensor, beam: int) -> tuple[Any, Any]:
        """The best starts and for each of them its best ends: (log-probabilities, places) twice."""
        beam = min(beam, starts.shape[1])
        chosen = starts.log_softmax(1).topk(beam)
        return chosen, self.ends(rows, chosen.indices, allowed).log_softmax(2).topk(beam)


@dataclass
class JointSpanOutput(ModelOutput):  # type: ignore[misc]
    """Logits, and the best starts with the best ends of each."""

    start_logits: Tensor | None = None
    end_logits: Tensor | None = None  # after the likeliest start
    null_logits: Tensor | None = None  # above 0: more likely that there is no answer
    start_top_log_probs: Tensor | None = None  # [n, beam]
    start_top_index: Tensor | None = None
    end_top_log_probs: Tensor | None = None  # [n, beam, beam]
    end_top_index: Tensor | None = None


class JointSpanForQuestionAnswering(PreTrainedModel):  # type: ignore[misc]
    """An encoder under its own name, as in transformers' classes, and the head."""

    config_class = JointSpanConfig

    def __init__(self, config: JointSpanConfig):
        super().__init__(config)
        net = from_config(AutoModel, config.encoder_config)
        if getattr(net, "pooler", None) is not None:
            net.pooler = None
        self.inside = net.base_model_prefix
        setattr(self, self.inside, net)
        self.joint = JointHead(net.config.hidden_size, config.inner)
        self.post_init()

    @classmethod
    def around(cls, net: PreTrainedModel, head: JointHead, beam: int) -> "JointSpanForQuestionAnswering":
        """An encoder and a head that are there already."""
        config = JointSpanConfig(net.config.to_dict(), head.end.in_features, beam)
        with torch.device("meta"):
            whole = cls(config)
        setattr(whole, whole.inside, net)
        whole.joint = head
        return whole

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, JointHead):
            module.reset()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        p_mask: Tensor | None = None,
        **more: Any,
    ) -> JointSpanOutput:
        """`p_mask` is 1 for tokens that cannot be an answer; default: those that are not of the second text."""
        types = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        net = getattr(self, self.inside)
        rows = net(input_ids=input_ids, attention_mask=attention_mask, **types, **more).last_hidden_state
        allowed = _allowed(attention_mask, token_type_ids, p_mask)
        starts = self.joint.starts(rows, allowed)
        first, last = self.joint.best(rows, starts, allowed, self.config.beam)
        return JointSpanOutput(
            start_logits=starts,
            end_logits=self.joint.ends(rows, first.indices[:, :1], allowed)[:, 0],
            null_logits=self.joint.null(rows, starts),
            start_top_log_probs=first.values,
            start_top_index=first.indices,
            end_top_log_probs=last.values,
            end_top_index=last.indices,
        )


def _allowed(attention: Tensor | None, types: Tensor | None, forbidden: Tensor | None) -> Tensor:
    """The tokens of the text, and the first one, which stands for no answer."""
    if forbidden is not None:
        allowed = forbidden.eq(0)
    elif types is not None:
        allowed = types.eq(1)
    else:
        raise ValueError("give token_type_ids or p_mask: nothing else says where the question ends and the text begins")
    allowed[:, 0] = True
    return allowed if attention is None else allowed & attention.eq(1)


def load_joint(head: JointHead, folder: Path) -> list[str]:
    """Put the head's weights of a saved folder into it; what it lacks, in words."""
    state: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        found = load_file(file).items()
        state |= {k.removeprefix(f"{PREFIX}."): v.float() for k, v in found if k.startswith(f"{PREFIX}.")}
    wanted = {name: value.shape for name, value in head.state_dict().items()}
    wrong = sorted({k for k in wanted if k not in state or state[k].shape != wanted[k]} | (state.keys() - wanted))
    if wrong:
        return [f"has no joint span head that fits this task ({', '.join(wrong[:3])})"]
    head.load_state_dict(state)
    return []


AutoModelForQuestionAnswering.register(JointSpanConfig, JointSpanForQuestionAnswering, exist_ok=True)
