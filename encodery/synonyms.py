"""What other programs call our settings: an unknown key is answered with the right one."""

SYNONYMS = {
    target: words.split()
    for target, words in {
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
        "optim.lr": "learning_rate learningrate max_lr peak_lr",
        "optim.kind": "optimizer optimiser",
        "optim.eps": "adam_epsilon adam_eps epsilon",
        "optim.betas": "adam_betas adam_beta1 adam_beta2 beta1 beta2",
        "optim.clip": "max_grad_norm grad_clip gradient_clip_val gradient_clipping clip_norm",
        "optim.schedule": "lr_scheduler_type lr_scheduler scheduler",
        "optim.warmup": "warmup_ratio warmup_steps warmup_proportion warmup_updates",
        "optim.layer_decay": "layerwise_lr_decay layerwise_lr_decay_power layer_lr_decay llrd",
        "train.epochs": "num_train_epochs num_epochs n_epochs max_epoch max_epochs epoch",
        "train.max_steps": "total_steps num_train_steps max_train_steps",
        "train.batch_size": "per_device_train_batch_size per_gpu_train_batch_size train_batch_size batchsize bs",
        "train.micro_batch": "gradient_accumulation_steps accumulate_grad_batches micro_batch_size",
        "train.max_length": "max_seq_length max_seq_len max_len max_source_length",
        "train.precision": "fp16 bf16 amp mixed_precision",
        "train.compile": "torch_compile",
        "train.evaluate": "eval_steps eval_strategy evaluation_strategy validate_interval eval_every",
        "train.save": "save_steps save_strategy checkpoint_every",
        "train.log": "logging_steps log_interval log_every",
        "train.select": "load_best_model_at_end",
        "train.select_metric": "metric_for_best_model",
        "train.patience": "early_stopping_patience early_stopping",
        "seed": "random_seed random_state",
        "data": "data_dir data_path data_root",
        "device": "no_cuda use_cpu gpu",
        "threads": "num_threads n_threads",
    }.items()
}
_BY_WORD = {word: target for target, words in SYNONYMS.items() for word in words}
# Two codes mean different numbers by the same word.
_TWO_MEANINGS = {
    "adv_steps": "method.steps (passes, as FreeLB's ALBERT code counts) or method.ascent_steps (ascents, one less, as "
    "its RoBERTa code counts)",
}


def ours(word: str) -> str | None:
    """Our key for a word of other programs: learning_rate -> optim.lr."""
    word = word.lower().replace("-", "_")
    return _TWO_MEANINGS.get(word, _BY_WORD.get(word))
