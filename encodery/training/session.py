"""One run at work: takes steps, evaluates, saves, and ends with a model, predictions and scores."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from encodery.config.load import Resolved
from encodery.config.schema import interval, steps_of_shares
from encodery.core import files
from encodery.core.progress import Progress, spell_scores
from encodery.core.signals import StopRequest
from encodery.data.batches import Batches, MicroBatcher, Share
from encodery.distributed import comm
from encodery.errors import AFTER_ALARM, RunFailed, Stopped, UserError
from encodery.inference import outputs
from encodery.inference.open_model import precision_tip
from encodery.methods.base import Presampling
from encodery.models import fsdp, lora
from encodery.models.compiled import graphs
from encodery.objectives.parts.masking import Masking
from encodery.report.run_card import model_card
from encodery.runs.directory import RunDir, task_and_split
from encodery.tasks.base import Answer
from encodery.tasks.forms.metric_table import among
from encodery.training import checkpoint, linear_probe, optim
from encodery.training.best_checkpoint import (
    Headline,
    PredictionCache,
    baseline_name,
    better,
    majority_score,
    majority_warning,
    means,
    over_tasks,
    require_metric,
    scale_warning,
    stuck,
)  # fmt: skip
from encodery.training.build import Built
from encodery.training.dynamics_recorder import Recorder
from encodery.training.loop import StepReport, TrainState, train
from encodery.training.task_data import Split, TaskData
from encodery.training.utilisation import Meter, peak_of

WEIGHTING = "weighting"
LINE = 8  # scores in a line of the log; all of them are in metrics.jsonl and scores.json


class Session:
    """The state of a run in memory; everything that must outlive the process goes through `save`."""

    def __init__(
        self, run: RunDir, resolved: Resolved, built: Built, progress: Progress, stop: StopRequest, identity: str
    ):
        self.identity = identity
        self.run, self.config, self.built, self.progress, self.stop = run, resolved.config, built, progress, stop
        self.method, self.weighting, self.optimizer = built.method, built.weighting, built.optimizer
        self.method_group = f"method-{type(built.method_options).__name__.lower()}"
        self.state, options = built.state, self.config.train
        per_epoch = built.batches.steps_per_epoch
        self.evaluations, self.saves = (interval(one, per_epoch) for one in (options.evaluate, options.save))
        self.keep_at = steps_of_shares(built.keep_at, self.state.total)
        self.predictions = PredictionCache(options.select, merged=self.config.model.tune == "lora")
        self.dynamics, self.leaving = None, False
        self.meter, self.graphs = self.make_meter(), 0
        self.latest: StepReport | None = None
        record = "train" if options.dynamics is True else options.dynamics
        if record and not isinstance(built.batches, Batches):
            raise UserError("train.dynamics: it records the rows of one task; this run has several")
        if record and isinstance(built.batches, Batches):
            rows = built.tasks_data[0].train.examples
            self.dynamics = Recorder(run.path, built.task, built.model, built.batches, self.state.total, record, rows)

    def make_meter(self) -> Meter | None:
        """What is logged of a GPU, or where a peak rate is given; the table has the rates of others."""
        device, options = next(self.built.model.parameters()).device, self.config.train
        if device.type != "cuda" and not self.progress.peak:
            return None
        one = self.progress.peak or peak_of(device, self.built.precision, options.tf32)
        known = self.config.method["kind"] == "plain" and self.config.model.tune == "full"  # so are its FLOPs
        return Meter.of(self.state, device, one * comm.size() if one and known else None)

    # Resume

    def resume(self) -> None:
        """Go on at the newest intact checkpoint; each damaged one is named with its reason."""
        saved = checkpoint.newest_for_all_processes(
            self.run.checkpoints, lambda sentence: self.log(f"warning: {sentence}")
        )
        if saved is None:
            self.run.rewind_metrics(-1)
            return
        self.load_weights(saved)
        moments = fsdp.like(self.optimizer.tensors(), saved.tensors("optimizer"))
        self.optimizer.load(moments, saved.state["optimizer"])
        if self.method_group in saved.groups:
            self.method.load(saved.tensors(self.method_group))
        if WEIGHTING in saved.groups:
            self.weighting.load(saved.tensors(WEIGHTING))
        now, self.state = self.state, TrainState.read(saved.state["train"])
        self.state.total, self.state.budget = now.total, min(self.state.budget, now.budget)  # for lack of memory
        self.meter = self.make_meter()
        self.rewind_metrics(saved)
        self.log(f"resuming at step {self.state.step} of {self.state.total}")

    def rewind_metrics(self, saved: checkpoint.Checkpoint) -> None:
        """Drop what was recorded after the checkpoint; what was recorded before it and is no longer there is named."""
        left, written = self.run.rewind_metrics(saved.step), checkpoint.records_of(saved)
        if self.run.writes and left < written:
            path, step = self.run.metrics_file.path, saved.step
            sentence = f"{path} has {left} of the {written} records up to step {step}, the others are lost"
            self.log(f"warning: {sentence}; weights and scores do not depend on them")
            self.run.notice(sentence)

    def prolong(self) -> None:
        """After `resume` of a finished run: what ended it, other than its number of steps, counts anew."""
        self.state.stopped_early, self.state.waited = False, 0
        self.log(f"trained for longer: from {self.state.step} to {self.state.total} steps, on the schedule of these")

    def load_weights(self, saved: checkpoint.Checkpoint) -> None:
        """The model's weights as they were."""
        fsdp.load(self.built.model, saved.tensors("model"))

    def save(self) -> None:
        """A checkpoint of this very step; of older ones the last two and the best stay."""
        self.wait_for_numbers()
        if not (self.run.writes or self.built.model.sharded):  # which all of them gather
            return
        self.run.sync()
        if self.dynamics:
            self.dynamics.flush()
        tensors = {"model": self.built.model.state_dict(), "optimizer": self.optimizer.tensors()}
        if self.built.model.sharded:
            tensors = {group: fsdp.gathered(named) for group, named in tensors.items()}
        if not self.run.writes:
            return
        if held := self.method.tensors():
            tensors[self.method_group] = held
        if weights := self.weighting.tensors():
            tensors[WEIGHTING] = weights
        about = {"identity": self.identity, "records": self.run.metrics_file.count()}
        state = {"train": self.state.to_dict(), "optimizer": self.optimizer.state(), checkpoint.RUN: about}
        checkpoint.save(self.run.checkpoints, self.state.step, tensors, state)
        newest = checkpoint.last_steps(self.run.checkpoints, 2, until=self.state.step)
        checkpoint.prune(self.run.checkpoints, newest | self.best_steps())

    def best_steps(self) -> set[int]:
        """Steps whose checkpoints may become the model, or a task's own."""
        select, state = self.config.train.select, self.state
        each = [found["step"] for found in state.best_of.values()] if select == "each" else []
        return {*([state.best["step"]] if state.best and select != "last" else []), *each}

    # The loop

    def loop(self, watch: Callable[[StepReport], None] | None = None) -> None:
        """Take the steps that are left."""
        device = next(self.built.model.parameters()).device
        self.progress.tip = precision_tip(self.config, device)
        self.progress.start(self.built.name, self.state.total, self.state.step)
        for report in self.steps():
            if watch:
                watch(report)
            self.after(report)
            self.leave_if_asked(asked=self.leaving)

    def leave_if_asked(self, _: int = 0, asked: bool | None = None) -> None:
        """End with exit code 3 after a signal; whoever calls has nothing unsaved."""
        if self.stop.requested if asked is None else asked:
            again = "the same command resumes"
            raise Stopped(f"stopped at step {self.state.step} of {self.state.total}, checkpoint saved; {again}")

    def leave_together(self, _: int = 0) -> None:
        """The same where all processes come by: they leave if one was asked to."""
        self.leave_if_asked(asked=comm.any_of(self.stop.requested))

    def steps(self) -> Iterator[StepReport]:
        """The loop itself: a generator of step reports. Early stopping ends it."""
        optim_options, options = self.config.optim, self.config.train
        steps = train(
            self.built.model, self.method, self.built.batches, self.optimizer, self.built.schedule, self.state,
            optim_options.clip, options.loss_reduction, self.weighting, self.built.rates,
        )  # fmt: skip
        if self.state.owes_evaluation:
            self.evaluate_if_due()
        if self.dynamics and self.dynamics.owed(self.state.step):
            self.record_rows()
        while self.state.step < self.state.total and not self.state.stopped_early:
            yield next(steps)

    def after(self, report: StepReport) -> None:
        """What follows a step, the last one included: record, evaluate, save."""
        options, step, self.latest = self.config.train, report.step, report
        last = step >= self.state.total
        logged = step % options.log == 0 or last or self.built.method_options.watches(step)
        wanted = any(task_data.choice for task_data in self.built.tasks_data) and options.evaluate != "never"
        self.state.owes_evaluation = wanted and (self.evaluations.due(step) or last)
        if logged or self.state.owes_evaluation or step in self.keep_at:
            self.wait_for_numbers()
        recent = self.state.losses[-options.log :]
        loss = math.fsum(recent) / len(recent) if recent else report.loss
        if logged and self.meter:
            self.meter.measure(self.state)
        self.progress.step(report, loss, self.meter.words() if self.meter else "")
        self.say_compiled(step)
        for line in self.method.messages() if isinstance(self.method, Presampling) else ():
            self.log(f"step {step}  {line}")
        if logged:
            self.record(report, loss)
        better = self.state.owes_evaluation and self.evaluate_if_due()
        if self.dynamics and self.dynamics.after(step):
            self.record_rows()
        if step in self.keep_at:
            self.keep(self.keep_at[step])
        if self.built.probes and comm.is_main() and (step in self.keep_at or last or self.probe_due(step)):
            self.probe()
        said = comm.gather([self.stop.requested, self.saves.due(step)])
        self.leaving = any(asked for asked, _ in said)  # all processes at the same step
        due_save = said[0][1]  # by the clock of the first: who saves waits for numbers, which all read together
        if self.config.train.check_processes:
            comm.require_equal(self.built.model.named_parameters(), f"step {step}: the weights")
        keep = better and options.select != "last"
        if due_save or keep or last or self.leaving or self.state.stopped_early:
            self.save()

    def say_compiled(self, step: int) -> None:
        """A line for each step that had to compile: after the first few there should be none."""
        if not self.config.train.compile or (now := graphs()) == self.graphs:
            return
        self.log(f"step {step}  compiled {now - self.graphs} graphs, {now} in all")
        self.graphs = now

    def wait_for_numbers(self) -> None:
        """Wait for the numbers of the steps so far: a step that was not finite ends the run here, at the latest."""
        if self.latest is not None:
            self.latest.wait()

    def record_rows(self) -> None:
        """All training rows for the dynamics; a signal leaves the rest for later, as an evaluation."""
        assert self.dynamics is not None
        with suppress(Stopped):
            self.dynamics.record_rows(self.state.step, self.batcher, self.leave_together)

    @property
    def batcher(self) -> MicroBatcher:
        """What cuts an evaluation, in all processes alike: smaller where the memory of one of them once ran out."""
        return self.built.batches.with_budget(min(comm.gather(self.state.budget))).batcher

    def keep(self, share: str) -> None:
        """The model of this step, for later: RUN@25%."""
        self.write_model(self.run.kept / share)
        self.log(f"step {self.state.step}  kept as {self.run.path}@{share}%")

    def probe_due(self, step: int) -> bool:
        """Whether the encoder is probed after this step."""
        options = self.config.probe
        return bool(options and options.every and step % options.every == 0)

    def probe(self) -> None:
        """Probe the encoder as it is."""
        encoder = self.built.model.encoder
        objectives = (self.built.model.objective(name) for name in self.built.model.names)
        objective = next((one for one in objectives if hasattr(one, "as_saved")), None)
        batcher = self.built.batches.with_budget(self.state.budget).batcher
        with objective.as_saved(encoder) if objective else nullcontext():
            found = linear_probe.run(self.built.probes, encoder, batcher)
        self.run.record(self.state.step, **found)
        self.log(f"step {self.state.step}  " + "  ".join(f"{name} {value:.4f}" for name, value in found.items()))

    def evaluate_if_due(self) -> bool:
        """The evaluation that is due; a signal leaves it owed, so that stopping takes seconds and loses nothing."""
        better = False
        with suppress(Stopped):
            better = self.evaluate()
            self.state.owes_evaluation = False
        better, state = comm.from_main([better, self.state.to_dict()])
        if not comm.is_main():  # the others go on with what the first has found
            vars(self.state).update(vars(TrainState.read({**state, "budget": self.state.budget})))
        self.predictions.commit(self.state)
        return bool(better)

    def record(self, report: StepReport, loss: float) -> None:
        """One line of metrics.jsonl."""
        more = {f"loss.{name}": value for name, value in report.terms.items()} if len(report.terms) > 1 else {}
        more |= {f"loss.{task}": means(losses[-10:]) for task, losses in self.state.task_losses.items()}
        notes = {n if n.startswith(WEIGHTING) else f"method.{n}": value for n, value in report.notes.items()}
        scaler: dict[str, Any] = {"skipped": self.state.scaler.skipped} if self.state.scaler else {}
        counted = self.state.flops and (self.meter or not self.built.task.labelled)  # else a line would tell the time
        spent = {"elapsed": round(self.state.elapsed, 3), "flops": self.state.flops} if counted else {}
        self.run.record(
            report.step, loss=loss, norm=report.norm, tokens=report.tokens, cells=report.cells,
            seconds=round(report.seconds, 4), **self.optimizer.rates(), **self.mask_shares(report.step - 1),
            **more, **notes, **scaler, **spent,
            **(self.meter.latest if self.meter else {}),
        )  # fmt: skip

    def mask_shares(self, step: int) -> dict[str, float]:
        """The share of masked words in a step, task by task, where it changes during the run."""
        tasks, shares = self.built.tasks_data, dict[str, float]()
        for name in (one.name for one in tasks):
            masking = getattr(getattr(self.built.model.objective(name), "options", None), "masking", None)
            if isinstance(masking, Masking) and masking.final_probability is not None:
                shares["masked" if len(tasks) == 1 else f"masked.{name}"] = round(masking.at(step).probability, 6)
        return shares

    def evaluate(self) -> bool:
        """Score what choices are made on, task by task; says whether anything that is kept became better."""
        state = self.state
        answered = [(s, s.choice, self.answers(s, s.choice)) for s in self.built.tasks_data if s.choice]
        headlines = {s.name: self.score_split(s, split, answers) for s, split, answers in answered}
        self.predictions.add({(s.name, split.name): answers for s, split, answers in answered})
        overall = over_tasks(headlines, self.config.train.select_on)
        own = [self.note_best(name, one) for name, one in headlines.items()]
        best, (metric, value) = better(overall, state.best), overall
        if best:
            state.best, state.waited = {"step": state.step, "score": value, "metric": metric}, 0
        else:
            state.waited += 1
        if len(headlines) > 1:
            self.run.record(state.step, **{"eval.mean": value})
            self.log(f"step {state.step}  {metric} {value:.4f}")
        self.stop_early(metric)
        return best or (self.config.train.select == "each" and any(own))

    def score_split(self, task_data: TaskData, split: Split, answers: dict[str, Answer]) -> Headline:
        """The scores of one task, written down; its headline."""
        task, step = task_data.task, self.state.step
        if thresholds := task.choose_thresholds(answers, split.examples):  # as they would be chosen for these weights
            answers = task.decided(answers, thresholds["labels"])
        scores = task.score(answers, split.examples)
        metric = among(self.config.train.select_metric or task.main_metric, scores)
        several = len(self.built.tasks_data) > 1
        where = {"split": split.name} | ({"task": task.name} if several else {})
        self.run.record(step, **where, **{f"eval.{k}": v for k, v in scores.items()})
        name = f"{task.name}:{split.name}" if several else split.name
        self.log(f"step {step}  {name}  {spell_scores(scores, metric, LINE)}")
        require_metric(metric, scores, task.name)
        return metric, scores[metric]

    def note_best(self, name: str, headline: Headline) -> bool:
        """Whether a task is better than ever; if so, that is remembered."""
        best = better(headline, self.state.best_of.get(name))
        if best:
            self.state.best_of[name] = {"step": self.state.step, "score": headline[1], "metric": headline[0]}
        return best

    def stop_early(self, metric: str) -> None:
        """Patience is over."""
        state, patience = self.state, self.config.train.patience
        if patience and state.waited >= patience and state.step < state.total:
            state.stopped_early = True
            self.log(f"stopping early: no better {metric} in {patience} evaluations")

    def answers(self, task_data: TaskData, split: Split) -> dict[str, Answer]:
        """The model's answers, a part of them from each process; a signal to any ends it between two batches."""
        share, leave = Share(comm.rank(), comm.size()), self.leave_together
        return outputs.answer(self.built.model, task_data.task, split.table, self.batcher, leave, split.examples, share)

    # The end

    def finish(self) -> None:
        """The end of a run, by all its processes: model, predictions, scores and card, DONE, no more checkpoints."""
        comm.wait()  # for the last checkpoint, which may be the best one
        result = self.result()
        if self.run.writes:
            self.run.write_scores(result)
            self.run.write_card(model_card(self.run, self.config.to_dict(), result))
            for key, scores in result["scores"].items():
                remarks = score_remarks(result, key, self.objective_of(key))
                self.log(f"{key}  {spell_scores(scores, result['main'][key], LINE)}{remarks}")
                if warning := majority_warning(result, key) or scale_warning(result, key):
                    self.log(warning)
            self.run.mark_done()
            if not self.config.train.keep_checkpoints:
                self.run.drop_checkpoints()
            self.log(f"done: {self.run.path}")
        comm.end_run()

    def objective_of(self, key: str) -> str | None:
        """The kind of objective of the task that a key of the scores belongs to."""
        task: dict[str, dict[str, str]] = self.built.card["tasks"].get(task_and_split(key)[0], {})
        return task.get("objective", {}).get("kind")

    def result(self) -> dict[str, Any]:
        """Choose the weights, save the model, answer the evaluation splits; what scores.json says."""
        chosen = self.choose()
        if self.config.model.tune == "lora":
            lora.merge(self.built.model.encoder)
        each = self.config.train.select == "each"  # then what was heard on the way is of other weights
        for task_data in self.built.tasks_data:
            self.choose_thresholds(task_data, heard=not each)
        self.write_model(self.run.model)
        result: dict[str, Any] = {"scores": {}, "main": {}, "majority": {}, "chosen": chosen, "alarms": []}
        for task_data in self.built.tasks_data:
            result["alarms"] += self.loss_alarm(task_data)
            with self.own_best(task_data):
                self.score(task_data, result)
        if still := optim.still_run(self.config.optim, self.state.total):
            result["notes"] = [still]
        for sentence in result["alarms"]:
            self.log(f"ALARM: collapsed? {sentence}; {AFTER_ALARM}")
        if isinstance(self.method, Presampling):
            result["notes"] = [*result.get("notes", []), *self.method.summary()]
        for sentence in result.get("notes", []):
            self.log(sentence)
        return result

    def score(self, task_data: TaskData, result: dict[str, Any]) -> None:
        """Answer and score the evaluation splits of a task."""
        task = task_data.task
        for name in self.evaluation_splits(task_data):
            with comm.one_by_one():
                split, key = task_data.split(name), f"{task.name}:{name}"
            if not task.labelled and not len(split.table):  # a small corpus, none of whose documents is held out
                continue
            answers = self.final_answers(task_data, split)
            if limits := self.chosen_thresholds(task_data):
                answers = task.decided(answers, limits["labels"])
                result.setdefault("thresholds", {})[task.name] = limits
            result["scores"][key], result["main"][key] = task.score(answers, split.examples), task.main_metric
            if task.labelled:
                result["majority"][key], more = self.compare(task_data, split, answers)
                result["alarms"] += [f"{key}: {sentence}" for sentence in more]

    def final_answers(self, task_data: TaskData, split: Split) -> dict[str, Answer]:
        """Those that were heard on the way, if they are of the very weights; else the model is asked."""
        cached = self.predictions.get(self.state, task_data.name, split.name)
        alike = all(comm.gather(cached is not None))  # no process may begin to answer alone
        return cached if cached and alike else self.answers(task_data, split)

    def choose_thresholds(self, task_data: TaskData, heard: bool = True) -> None:
        """Choose the thresholds of a task's labels for the weights as they are; the model's card keeps them."""
        if not task_data.task.chooses_thresholds or task_data.choice is None:
            return
        answers = (self.final_answers if heard else self.answers)(task_data, task_data.choice)
        found = task_data.task.choose_thresholds(answers, task_data.choice.examples)
        self.built.card["tasks"][task_data.name]["thresholds"] = {**(found or {}), "chosen_on": task_data.choice.name}

    def chosen_thresholds(self, task_data: TaskData) -> dict[str, Any] | None:
        """Thresholds of a task that were chosen on some split."""
        found: dict[str, Any] = self.built.card["tasks"][task_data.name].get("thresholds", {})
        return found if found.get("chosen_on") else None

    def compare(
        self, task_data: TaskData, split: Split, answers: dict[str, Answer]
    ) -> tuple[dict[str, float], list[str]]:
        """Write the answers down; scores of the answer that needs no model, and whether ours is such a one."""
        task = task_data.task
        self.run.write_answers(task, split.name, answers)
        sentence = outputs.collapsed(task, answers)
        return outputs.majority(task, task_data.trained_on, split.examples), [sentence] if sentence else []

    @contextmanager
    def own_best(self, task_data: TaskData) -> Iterator[None]:
        """select: each: inside, the model has the weights that were best for the task; they are kept too."""
        best = self.state.best_of.get(task_data.name)
        if self.config.train.select != "each" or best is None:
            yield
            return
        model = self.built.model
        before = {name: value.clone() for name, value in model.state_dict().items()}
        self.load_weights(checkpoint.load(checkpoint.path_of(self.run.checkpoints, best["step"])))
        self.choose_thresholds(task_data)
        self.write_model(self.run.best_of(task_data.name))
        yield
        model.load_state_dict(before)

    def choose(self) -> dict[str, Any]:
        """Last or best weights; what was chosen, and on what, stands in every table."""
        options, state = self.config.train, self.state
        where: dict[str, Any] = {"select": options.select, "step": state.step, "stopped_early": state.stopped_early}
        if len(self.built.tasks_data) > 1 and state.best_of:
            where["best_of"] = state.best_of
        if options.select == "last" or state.best is None:
            return where
        self.load_weights(checkpoint.load(checkpoint.path_of(self.run.checkpoints, state.best["step"])))
        split = next(s.choice.name for s in self.built.tasks_data if s.choice)
        return where | {"step": state.best["step"], "chosen_on": split, "best": state.best}

    def write_model(self, folder: Path) -> None:
        """The transformers folder, whole or not at all."""
        model = self.built.model
        gathered = fsdp.gathered(model.state_dict()) if model.sharded else {}
        if not self.run.writes:
            return
        if self.built.plain:
            model = self.built.plain
            model.load_state_dict(gathered)
        try:
            folder.parent.mkdir(exist_ok=True)
            with files.atomic_folder(folder) as beside:
                model.save(beside, self.built.tokenizer, self.built.card)
        except OSError as error:
            raise RunFailed(files.trouble("the model could not be saved", self.run.path, error)) from error

    def evaluation_splits(self, task_data: TaskData) -> list[str]:
        """What is scored at the end: as asked, or every dev split that is here."""
        asked = task_data.entry.evaluate_on
        return asked if asked is not None else task_data.task.dev_splits()

    def loss_alarm(self, task_data: TaskData) -> list[str]:
        """Training loss that is no better than ln(classes) after warm-up."""
        several = len(self.built.tasks_data) > 1
        losses = self.state.task_losses.get(task_data.name, []) if several else self.state.losses
        after_warmup = self.state.step - math.ceil(optim.warmup_steps(self.config.optim, self.state.total))
        if self.built.card["tasks"][task_data.name]["objective"].get("form") != "single" or after_warmup <= 0:
            return []
        sentence = stuck([loss / task_data.entry.weight for loss in losses[-after_warmup:]], len(task_data.task.labels))
        return [f"{task_data.name}: {sentence}" if several else sentence] if sentence else []

    def log(self, line: str) -> None:
        """To the person and to log.txt."""
        self.progress.say(line)
        self.run.log(line)


def score_remarks(result: dict[str, Any], key: str, objective: str | None = None) -> str:
    """What belongs beside a score: the majority baseline, and what was chosen on the very rows that it was taken on."""
    task, split = task_and_split(key)
    chosen = f" (best on {split}, reported on {split})" if result["chosen"].get("chosen_on") == split else ""
    if (easy := majority_score(result, key)) is not None:
        main = result["main"][key]
        equal = result["scores"][key].get(main) == easy and not majority_warning(result, key)  # else that says it
        more = "; not better than the baseline" if equal else ""
        chosen += f" ({baseline_name(objective)}: {main} {easy:.4f}{more})"
    if (thresholds := result.get("thresholds", {}).get(task)) is None:
        return chosen
    on = thresholds["chosen_on"]
    return f"{chosen} (threshold chosen on {on}{', reported on ' + on if on == split else ''})"
