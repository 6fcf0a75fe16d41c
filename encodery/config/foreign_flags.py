"""Flags of transformers' run_glue and Trainer that are no setting here: what to write instead."""

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
    wanted = word.lower().replace("-", "_")
    return next((advice for advice, words in _ADVICE.items() if wanted in words.split()), None)
