"""Names that other programs have for settings, and flags of theirs that are no setting here: what to write instead."""

_MEAN = "did you mean {}?"
_NOT_NEEDED = "it is not needed here: leave it out"
_ADVICE = {
    "-o DIR names the run directory": "output_dir out_dir out save_dir logging_dir",
    "leave it out: `encodery train` trains and scores on dev": "do_train do_eval evaluate_during_training",
    "`encodery predict RUN --file FILE` answers new rows": "do_predict",
    "--fresh starts over": "overwrite_output_dir",
    "run the same command again, and it resumes": "resume_from_checkpoint",
    "`encodery track RUN --to tensorboard` (or wandb, mlflow, trackio) sends the records": "report_to run_name",
    "`encodery publish RUN --to OWNER/NAME` does that afterwards": "push_to_hub hub_model_id hub_strategy",
    "code of a model folder never runs here": "trust_remote_code",
    "the variable HF_HOME says where models are kept": "cache_dir",
    "keep tokens in HF_TOKEN or `hf auth login`": "token hub_token use_auth_token",
    "give the data file itself: `encodery train FILE`, or --tasks FILE": "train_file data_file dataset_file csv",
    _MEAN.format("tasks.dev"): "dev validation_file dev_file eval_file",
    _MEAN.format("tasks.test"): "test test_file",
    _MEAN.format("tasks.delimiter"): "delimiter sep separator",
    _MEAN.format("tasks.encoding"): "encoding",
    _MEAN.format("tasks.form"): "form problem_type",
    _MEAN.format("tasks.text"): "text text_column text_column_name text_column_names sentence1_key",
    _MEAN.format("tasks.text2"): "text2 text2_column sentence2_key",
    _MEAN.format("tasks.label"): "label label_column label_column_name target_column",
    _MEAN.format("tasks.count"): "max_train_samples",
    _MEAN.format("tasks.objective.kind"): "objective",
    _MEAN.format("tasks.objective.label_smoothing"): "label_smoothing_factor label_smoothing",
    _MEAN.format("tasks.objective.class_weights"): "class_weights class_weight",
    "a batch that does not fit on the device is split automatically (train.token_budget)": "auto_find_batch_size",
    "train.token_budget sets the batches of the evaluation": "per_device_eval_batch_size eval_batch_size",
    "the last two checkpoints and the best are kept; see train.keep_checkpoints": "save_total_limit",
    _NOT_NEEDED: "pad_to_max_length use_fast_tokenizer num_labels local_rank dataloader_num_workers num_workers "
    "group_by_length remove_unused_columns ignore_mismatched_sizes disable_tqdm ddp_find_unused_parameters",
}


def advice(word: str) -> str | None:
    """What to do instead of a flag of theirs; None for words that they do not have."""
    wanted = _plain(word)
    return next((advice for advice, words in _ADVICE.items() if wanted in words.split()), None)


# What other programs call our settings: an unknown key is answered with the right one.
SYNONYMS = {
    "model.name": "model_name model_name_or_path pretrained_model pretrained_model_name_or_path encoder checkpoint",
    "model.revision": "model_revision",
    "model.tokenizer": "tokenizer_name tokenizer_path vocab_file",
    "model.head_dropout": "classifier_dropout",
    "model.dropout": "hidden_dropout hidden_dropout_prob",
    "model.attention_dropout": "attention_probs_dropout_prob",
    "model.tune": "freeze_encoder use_lora peft",
    "tasks": "task task_name dataset dataset_name",
    "method": "adversarial",
    "method.steps": "adv_steps",
    "method.init_mag": "adv_init_mag",
    "method.max_norm": "adv_max_norm",
    "optim.lr": "learning_rate learningrate max_lr peak_lr max_rate",
    "optim.kind": "optimizer optimiser",
    "optim.eps": "adam_epsilon adam_eps epsilon",
    "optim.betas": "adam_betas adam_beta1 adam_beta2 beta1 beta2",
    "optim.clip": "max_grad_norm grad_clip gradient_clip_val gradient_clipping clip_norm",
    "optim.schedule": "lr_scheduler_type lr_scheduler scheduler",
    "optim.warmup": "warmup_ratio warmup_steps warmup_proportion warmup_updates",
    "optim.layer_decay": "layerwise_lr_decay layerwise_lr_decay_power layer_lr_decay llrd",
    "train.epochs": "num_train_epochs num_epochs n_epochs max_epoch max_epochs epoch",
    "train.max_steps": "total_steps num_train_steps max_train_steps",
    "train.batch_size": "per_device_train_batch_size per_gpu_train_batch_size train_batch_size batchsize bs "
    "max_samples",
    "train.micro_batch": "gradient_accumulation_steps accumulate_grad_batches micro_batch_size",
    "train.max_length": "max_seq_length max_seq_len max_len max_source_length",
    "train.precision": "fp16 bf16 amp mixed_precision",
    "train.compile": "torch_compile",
    "train.evaluate": "eval_steps eval_strategy evaluation_strategy validate_interval eval_every "
    "validate_interval_epoch "
    "validate_interval_step",
    "train.save": "save_steps save_strategy checkpoint_every",
    "train.log": "logging_steps log_interval log_every",
    "train.select": "load_best_model_at_end",
    "train.select_metric": "metric_for_best_model",
    "train.patience": "early_stopping_patience early_stopping early_stopping_tolerance",
    "seed": "random_seed random_state",
    "data": "data_dir data_path data_root",
    "device": "no_cuda use_cpu gpu",
    "threads": "num_threads n_threads",
}
# Two codes mean different numbers by the same word.
_TWO_MEANINGS = {
    "adv_steps": "method.steps (passes, as FreeLB's ALBERT code counts) or method.ascent_steps (ascents, one less, as "
    "its RoBERTa code counts)",
}


def ours(word: str) -> str | None:
    """Our key for a word of other programs: learning_rate -> optim.lr."""
    word = _plain(word)
    found = (target for target, words in SYNONYMS.items() if word in words.split())
    return _TWO_MEANINGS.get(word) or next(found, None)


# Theirs without a value.
_BARE = {
    "fp16": "--train.precision fp16",
    "bf16": "--train.precision bf16",
    "tf32": "--train.tf32 true",
    "gradient_checkpointing": "--train.gradient_checkpointing true",
    "torch_compile": "--train.compile true",
    "load_best_model_at_end": "--train.select best",
    "no_cuda": "--device cpu",
    "use_cpu": "--device cpu",
}


def instead_of(word: str, *, bare: bool) -> str | None:
    """What to write instead of a flag of theirs, whatever kind it is; `bare` ones have no value."""
    if bare and (ours_with_value := _BARE.get(_plain(word))):
        return _MEAN.format(ours_with_value)
    return advice(word) or (_MEAN.format(known) if (known := ours(word)) else None)


def _plain(word: str) -> str:
    return word.lower().replace("-", "_")
