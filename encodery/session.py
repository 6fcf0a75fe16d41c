"""One run at work: takes steps, evaluates, saves, and ends with a model, predictions and scores."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from encodery import build, checkpoint, every, files, optim, predict, probe, world
from encodery.build import Built
from encodery.config import Resolved
from encodery.data.batches import Batches, Cutter
from encodery.data.share import Share
from encodery.errors import RunFailed, Stopped, UserError
from encodery.judge import Headline, better, means, over_tasks, require_metric, stuck
from encodery.loop import LossScale, StepReport, TrainState, steps_in_all, train
from encodery.methods.base import Presampling, Running
from encodery.metric_table import among
from encodery.models import lora, sharding
from encodery.models.model import safe
from encodery.optim import Param
from encodery.progress import Progress, spell_scores
from encodery.recorder import Recorder
from encodery.rundir import RunDir
from encodery.said import Said
from encodery.signals import StopRequest
from encodery.subject import Split, Subject
from encodery.tasks.base import Answer
from encodery.weighting.base import Weighing

WEIGHTING = "weighting"


class Session:
    """The state of a run in memory; everything that must outlive the process goes through `save`."""

    def __init__(
        self, run: RunDir, resolved: Resolved, built: Built, progress: Progress, stop: StopRequest, identity: str
    ):
        self.identity = identity
        self.run, self.config, self.built, self.progress, self.stop = run, resolved.config, built, progress, stop
        options_of_method: Any = resolved.method
        self.method: Running = options_of_method.start(built.model)
        self.watches: Callable[[int], bool] = options_of_method.watches
        self.method_group = f"method-{type(options_of_method).__name__.lower()}"
        weighting: Any = resolved.weighting
        self.weighting: Weighing = weighting.start(built.model, list(built.model.names), self.config.seed.data)
        self.rates = {s.name: s.entry.lr_scale for s in built.subjects if s.entry.lr_scale != 1.0}
        self.optimizer = build.make_optimizer(built.model, self.config, self.rates, self.learnt())
        options = self.config.train
        total = steps_in_all(built.batches, options.epochs, options.max_steps)
        self.schedule = optim.schedule(self.config.optim, total)
        fp16 = build.pick_precision(self.config, built.cutter.device) == "fp16"
        self.state = TrainState(total, budget=built.cutter.budget, scaler=LossScale() if fp16 else None)
        per_epoch = built.batches.steps_per_epoch
        self.evaluations, self.saves = (every.parse(one, per_epoch) for one in (options.evaluate, options.save))
        self.keep_at = every.of_shares(built.keep_at, total)
        self.said = Said(options.select, merged=self.config.model.tune == "lora")
        self.dynamics, self.leaving = None, False
        record = "train" if options.dynamics is True else options.dynamics
        if record and not isinstance(built.batches, Batches):
            raise UserError("train.dynamics: it records the rows of one task; this run has several")
        if record and isinstance(built.batches, Batches):
            rows = built.subjects[0].train.examples
            self.dynamics = Recorder(run.path, built.task, built.model, built.batches, total, record, rows)

    def learnt(self) -> list[Param]:
        """What the weighting learns, for the optimiser: no weight decay, and rates of its own."""
        found, lr = self.weighting.learnt().items(), self.config.optim.lr
        return [Param(f"weighting.{name}", one.tensor, None, one.lr / lr, True, decays=False) for name, one in found]

    # Resume

    def resume(self) -> None:
        """Go on at the newest intact checkpoint; each damaged one is named with its reason."""
        found = checkpoint.newest_of_all(self.run.checkpoints, lambda sentence: self.tell(f"warning: {sentence}"))
        if found is None:
            self.run.rewind_metrics(-1)
            return
        self.load_weights(found)
        moments = sharding.like(self.optimizer.tensors(), found.tensors("optimizer"))
        self.optimizer.load(moments, found.state["optimizer"])
        if self.method_group in found.groups:
            self.method.load(found.tensors(self.method_group))
        if WEIGHTING in found.groups:
            self.weighting.load(found.tensors(WEIGHTING))
        now, self.state = self.state, TrainState.read(found.state["train"])
        self.state.total, self.state.budget = now.total, min(self.state.budget, now.budget)  # for lack of memory
        self.rewind_metrics(found)
        self.tell(f"going on at step {self.state.step} of {self.state.total}")

    def rewind_metrics(self, found: checkpoint.Checkpoint) -> None:
        """Drop what was recorded after the checkpoint; what was recorded before it and is no longer there is named."""
        left, written = self.run.rewind_metrics(found.step), checkpoint.records_of(found)
        if world.leads() and left < written:
            path, step = self.run.metrics_file.path, found.step
            sentence = f"{path} has {left} of the {written} records up to step {step}, the others are lost"
            self.tell(f"warning: {sentence}; weights and scores do not depend on them")
            self.run.notice(sentence)

    def prolong(self) -> None:
        """After `resume` of a finished run: what ended it, other than its number of steps, counts anew."""
        self.state.stopped_early, self.state.waited = False, 0
        self.tell(f"trained for longer: from {self.state.step} to {self.state.total} steps, on the schedule of these")

    def load_weights(self, found: checkpoint.Checkpoint) -> None:
        """The model's weights as they were."""
        sharding.load(self.built.model, found.tensors("model"))

    def save(self) -> None:
        """A checkpoint of this very step; of older ones the last two and the best stay."""
        if not (world.leads() or sharding.is_sharded(self.built.model)):  # which all of them gather
            return
        self.run.sync()
        if self.dynamics:
            self.dynamics.flush()
        tensors = {"model": self.built.model.state_dict(), "optimizer": self.optimizer.tensors()}
        tensors = {group: sharding.whole(named) for group, named in tensors.items()}
        if not world.leads():
            return
        if held := self.method.tensors():
            tensors[self.method_group] = held
        if weights := self.weighting.tensors():
            tensors[WEIGHTING] = weights
        about = {"identity": self.identity, "records": self.run.metrics_file.count()}
        state = {"train": self.state.plain(), "optimizer": self.optimizer.state(), checkpoint.RUN: about}
        checkpoint.save(self.run.checkpoints, self.state.step, tensors, state)
        newest = checkpoint.newest(self.run.checkpoints, 2, until=self.state.step)
        checkpoint.prune(self.run.checkpoints, newest | self.best_steps())

    def best_steps(self) -> set[int]:
        """Steps whose checkpoints may become the model, or a task's own."""
        select, state = self.config.train.select, self.state
        each = [found["step"] for found in state.best_of.values()] if select == "each" else []
        return {*([state.best["step"]] if state.best and select != "last" else []), *each}

    # The loop

    def loop(self, watch: Callable[[StepReport], None] | None = None) -> None:
        """Take the steps that are left."""
        self.progress.start(self.built.name, self.state.total, self.state.step)
        for report in self.steps():
            if watch:
                watch(report)
            self.after(report)
            self.leave_if_asked(asked=self.leaving)

    def leave_if_asked(self, _: int = 0, asked: bool | None = None) -> None:
        """End with exit code 3 after a signal; whoever calls has nothing unsaved."""
        if self.stop.requested if asked is None else asked:
            again = "the same command goes on"
            raise Stopped(f"stopped at step {self.state.step} of {self.state.total}, checkpoint saved; {again}")

    def leave_together(self, _: int = 0) -> None:
        """The same where all processes come by: they leave if one was asked to."""
        self.leave_if_asked(asked=world.any_of(self.stop.requested))

    def steps(self) -> Iterator[StepReport]:
        """The loop itself: a generator of step reports. Early stopping ends it."""
        optim_options, options = self.config.optim, self.config.train
        steps = train(
            self.built.model, self.method, self.built.batches, self.optimizer, self.schedule, self.state,
            optim_options.clip, options.loss_reduction, self.weighting, self.rates,
        )  # fmt: skip
        if self.state.owes_evaluation:
            self.settle()
        if self.dynamics and self.dynamics.owed(self.state.step):
            self.look_at_rows()
        while not self.finished:
            yield next(steps)

    @property
    def finished(self) -> bool:
        """Whether no step is left."""
        return self.state.step >= self.state.total or self.state.stopped_early

    def after(self, report: StepReport) -> None:
        """What follows a step, the last one included: record, evaluate, save."""
        options, step = self.config.train, report.step
        recent = self.state.losses[-options.log :]
        loss = math.fsum(recent) / len(recent) if recent else report.loss
        self.progress.step(report, loss)
        for line in self.method.messages() if isinstance(self.method, Presampling) else ():
            self.tell(f"step {step}  {line}")
        last = step >= self.state.total
        if step % options.log == 0 or last or self.watches(step):
            self.record(report, loss)
        wanted = any(subject.choice for subject in self.built.subjects) and options.evaluate != "never"
        self.state.owes_evaluation = wanted and (self.evaluations.due(step) or last)
        better = self.state.owes_evaluation and self.settle()
        if self.dynamics and self.dynamics.after(step):
            self.look_at_rows()
        if step in self.keep_at:
            self.keep(self.keep_at[step])
        if self.built.probes and world.leads() and (step in self.keep_at or last or self.probe_due(step)):
            self.look()
        self.leaving = world.any_of(self.stop.requested)  # all processes at the same step
        if self.config.train.check_processes:
            world.require_equal(self.built.model.named_parameters(), f"step {step}: the weights")
        keep = better and options.select != "last"
        if self.due_save(step) or keep or last or self.leaving or self.state.stopped_early:
            self.save()

    def due_save(self, step: int) -> bool:
        """Whether a checkpoint is due; by the first process's clock, where all of them take part."""
        due = self.saves.due(step)
        return bool(world.from_lead(due)) if sharding.is_sharded(self.built.model) else due

    def look_at_rows(self) -> None:
        """All training rows for the dynamics; a signal leaves the rest for later, as an evaluation."""
        assert self.dynamics is not None
        with suppress(Stopped):
            self.dynamics.look(self.state.step, self.cutter, self.leave_together)

    @property
    def cutter(self) -> Cutter:
        """What cuts an evaluation, in all processes alike: smaller where the memory of one of them once ran out."""
        return self.built.batches.with_budget(min(world.gather(self.state.budget))).cutter

    def keep(self, share: str) -> None:
        """The model of this step, for later: RUN@25%."""
        if world.leads():
            self.run.kept.mkdir(exist_ok=True)
        self.write_model(self.run.kept / share)
        self.tell(f"step {self.state.step}  kept as {self.run.path}@{share}%")

    def probe_due(self, step: int) -> bool:
        """Whether the encoder is probed after this step."""
        options = self.config.probe
        return bool(options and options.every and step % options.every == 0)

    def look(self) -> None:
        """Probe the encoder as it is."""
        encoder = self.built.model.encoder
        questions = (self.built.model.question(name) for name in self.built.model.names)
        question = next((one for one in questions if hasattr(one, "whole")), None)
        cutter = self.built.batches.with_budget(self.state.budget).cutter
        with question.whole(encoder) if question else nullcontext():
            found = probe.run(self.built.probes, encoder, cutter)
        self.run.record(self.state.step, **found)
        self.tell(f"step {self.state.step}  " + "  ".join(f"{name} {value:.4f}" for name, value in found.items()))

    def settle(self) -> bool:
        """The evaluation that is due; a signal leaves it owed, so that stopping takes seconds and loses nothing."""
        better = False
        with suppress(Stopped):
            better = self.evaluate()
            self.state.owes_evaluation = False
        better, state = world.from_lead([better, self.state.plain()])
        if not world.leads():  # the others go on with what the first has found
            vars(self.state).update(vars(TrainState.read({**state, "budget": self.state.budget})))
        self.said.keep(self.state)
        return bool(better)

    def record(self, report: StepReport, loss: float) -> None:
        """One line of metrics.jsonl."""
        more = {f"loss.{name}": value for name, value in report.terms.items()} if len(report.terms) > 1 else {}
        more |= {f"loss.{task}": means(losses[-10:]) for task, losses in self.state.task_losses.items()}
        notes = {n if n.startswith(WEIGHTING) else f"method.{n}": value for n, value in report.notes.items()}
        scaler: dict[str, Any] = {"skipped": self.state.scaler.skipped} if self.state.scaler else {}
        spent = {"elapsed": round(self.state.elapsed, 3), "flops": self.state.flops} if self.state.flops else {}
        self.run.record(
            report.step, loss=loss, norm=report.norm, tokens=report.tokens, cells=report.cells,
            seconds=round(report.seconds, 4), **self.optimizer.rates(), **more, **notes, **scaler, **spent,
        )  # fmt: skip

    def evaluate(self) -> bool:
        """Score what choices are made on, task by task; says whether anything that is kept became better."""
        state = self.state
        answered = [(s, s.choice, self.answers(s, s.choice)) for s in self.built.subjects if s.choice]
        found = {s.name: self.mark(s, split, answers) for s, split, answers in answered}
        self.said.hear({(s.name, split.name): answers for s, split, answers in answered})
        whole = over_tasks(found, self.config.train.select_on)
        own = [self.note_best(name, one) for name, one in found.items()]
        best, (metric, value) = better(whole, state.best), whole
        if best:
            state.best, state.waited = {"step": state.step, "score": value, "metric": metric}, 0
        else:
            state.waited += 1
        if len(found) > 1:
            self.run.record(state.step, **{"eval.mean": value})
            self.tell(f"step {state.step}  {metric} {value:.4f}")
        self.stop_early(metric)
        return best or (self.config.train.select == "each" and any(own))

    def mark(self, subject: Subject, split: Split, answers: dict[str, Answer]) -> Headline:
        """The scores of one task, written down; its headline."""
        task, step = subject.task, self.state.step
        if found := task.choose_thresholds(answers, split.examples):  # as they would be chosen for these weights
            answers = task.decided(answers, found["labels"])
        scores = task.score(answers, split.examples)
        metric = among(self.config.train.select_metric or task.main_metric, scores)
        several = len(self.built.subjects) > 1
        where = {"split": split.name} | ({"task": task.name} if several else {})
        self.run.record(step, **where, **{f"eval.{k}": v for k, v in scores.items()})
        name = f"{task.name}:{split.name}" if several else split.name
        self.tell(f"step {step}  {name}  {spell_scores(scores, metric)}")
        require_metric(metric, scores, task.name)
        return metric, scores[metric]

    def note_best(self, name: str, found: Headline) -> bool:
        """Whether a task is better than ever; if so, that is remembered."""
        best = better(found, self.state.best_of.get(name))
        if best:
            self.state.best_of[name] = {"step": self.state.step, "score": found[1], "metric": found[0]}
        return best

    def stop_early(self, metric: str) -> None:
        """Patience is over."""
        state, patience = self.state, self.config.train.patience
        if patience and state.waited >= patience and state.step < state.total:
            state.stopped_early = True
            self.tell(f"stopping early: no better {metric} in {patience} evaluations")

    def answers(self, subject: Subject, split: Split) -> dict[str, Answer]:
        """The model's answers, a part of them from each process; a signal to any ends it between two batches."""
        share, leave = Share(world.rank(), world.size()), self.leave_together
        return predict.answer(self.built.model, subject.task, split.table, self.cutter, leave, split.examples, share)

    # The end

    def finish(self) -> dict[str, Any]:
        """Choose the weights, save the model, answer the evaluation splits, write scores and card, then DONE."""
        chosen = self.choose()
        lora.merge(self.built.model.encoder)
        each = self.config.train.select == "each"  # then what was heard on the way is of other weights
        for subject in self.built.subjects:
            self.choose_thresholds(subject, heard=not each)
        self.save_model()
        result: dict[str, Any] = {"scores": {}, "main": {}, "majority": {}, "chosen": chosen, "alarms": []}
        for subject in self.built.subjects:
            result["alarms"] += self.loss_alarm(subject)
            with self.own_best(subject):
                self.score(subject, result)
        for sentence in result["alarms"]:
            self.tell(f"ALARM: collapsed? {sentence}")
        if isinstance(self.method, Presampling):
            result["notes"] = self.method.summary()
            for sentence in result["notes"]:
                self.tell(sentence)
        self.run.write_scores(result)
        return result

    def score(self, subject: Subject, result: dict[str, Any]) -> None:
        """Answer and score the evaluation splits of a task."""
        task = subject.task
        for name in self.evaluation_splits(subject):
            with world.one_by_one():
                split, key = subject.split(name), f"{task.name}:{name}"
            if not task.labelled and not len(split.table):  # a small corpus, none of whose documents is held out
                continue
            answers = self.final_answers(subject, split)
            if limits := self.chosen_thresholds(subject):
                answers = task.decided(answers, limits["labels"])
                result.setdefault("thresholds", {})[task.name] = limits
            result["scores"][key], result["main"][key] = task.score(answers, split.examples), task.main_metric
            if task.labelled:
                result["majority"][key], more = self.compare(subject, split, answers)
                result["alarms"] += [f"{key}: {sentence}" for sentence in more]

    def final_answers(self, subject: Subject, split: Split) -> dict[str, Answer]:
        """Those that were heard on the way, if they are of the very weights; else the model is asked."""
        known = self.said.recall(self.state, subject.name, split.name)
        alike = all(world.gather(known is not None))  # no process may begin to answer alone
        return known if known and alike else self.answers(subject, split)

    def choose_thresholds(self, subject: Subject, heard: bool = True) -> None:
        """Choose the thresholds of a task's labels for the weights as they are; the model's card keeps them."""
        if not subject.task.chooses_thresholds or subject.choice is None:
            return
        answers = (self.final_answers if heard else self.answers)(subject, subject.choice)
        found = subject.task.choose_thresholds(answers, subject.choice.examples)
        self.built.card["tasks"][subject.name]["thresholds"] = {**(found or {}), "chosen_on": subject.choice.name}

    def chosen_thresholds(self, subject: Subject) -> dict[str, Any] | None:
        """Thresholds of a task that were chosen on some split."""
        found: dict[str, Any] = self.built.card["tasks"][subject.name].get("thresholds", {})
        return found if found.get("chosen_on") else None

    def compare(self, subject: Subject, split: Split, answers: dict[str, Answer]) -> tuple[dict[str, float], list[str]]:
        """Write the answers down; scores of the answer that needs no model, and whether ours is such a one."""
        task = subject.task
        self.run.write_answers(task, split.name, answers)
        sentence = predict.collapsed(task, answers)
        return predict.majority(task, task.examples("train"), split.examples), [sentence] if sentence else []

    @contextmanager
    def own_best(self, subject: Subject) -> Iterator[None]:
        """select: each: inside, the model has the weights that were best for the task; they are kept too."""
        best = self.state.best_of.get(subject.name)
        if self.config.train.select != "each" or best is None:
            yield
            return
        model = self.built.model
        before = {name: value.clone() for name, value in model.state_dict().items()}
        self.load_weights(checkpoint.load(self.run.checkpoints / f"step-{best['step']:08d}"))
        self.choose_thresholds(subject)
        if world.leads():
            self.run.best.mkdir(exist_ok=True)
        self.write_model(self.run.best / safe(subject.name))
        yield
        model.load_state_dict(before)

    def choose(self) -> dict[str, Any]:
        """Last or best weights; what was chosen, and on what, stands in every table."""
        options, state = self.config.train, self.state
        where: dict[str, Any] = {"select": options.select, "step": state.step, "stopped_early": state.stopped_early}
        if len(self.built.subjects) > 1 and state.best_of:
            where["best_of"] = state.best_of
        if options.select == "last" or state.best is None:
            return where
        path = self.run.checkpoints / f"step-{state.best['step']:08d}"
        self.load_weights(checkpoint.load(path))
        split = next(s.choice.name for s in self.built.subjects if s.choice)
        return where | {"step": state.best["step"], "chosen_on": split, "best": state.best}

    def save_model(self) -> None:
        """The model of the run."""
        self.write_model(self.run.model)

    def write_model(self, folder: Path) -> None:
        """The transformers folder, whole or not at all."""
        model = self.built.model
        gathered = sharding.whole(model.state_dict()) if sharding.is_sharded(model) else {}
        if not world.leads():
            return
        if self.built.plain:
            model = self.built.plain
            model.load_state_dict(gathered)
        try:
            with files.atomic_folder(folder) as beside:
                model.save(beside, self.built.tokenizer, self.built.card)
        except OSError as error:
            raise RunFailed(files.trouble("the model could not be saved", self.run.path, error)) from error

    def evaluation_splits(self, subject: Subject) -> list[str]:
        """What is scored at the end: as asked, or every dev split that is here."""
        asked, task = subject.entry.evaluate_on, subject.task
        return asked if asked is not None else [s for s in task.splits() if s.startswith("dev") and task.has(s)]

    def loss_alarm(self, subject: Subject) -> list[str]:
        """Training loss that never left ln(classes) after warm-up."""
        several = len(self.built.subjects) > 1
        losses = self.state.task_losses.get(subject.name, []) if several else self.state.losses
        after_warmup = self.state.step - math.ceil(optim.warmup_steps(self.config.optim, self.state.total))
        if self.built.card["tasks"][subject.name]["objective"].get("form") != "single" or after_warmup <= 0:
            return []
        sentence = stuck([loss / subject.entry.weight for loss in losses[-after_warmup:]], len(subject.task.labels))
        return [f"{subject.name}: {sentence}" if several else sentence] if sentence else []

    def tell(self, line: str) -> None:
        """To the person and to log.txt."""
        self.progress.say(line)
        self.run.log(line)
