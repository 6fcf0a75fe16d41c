"""What the fault suite shares: all that is heavy is imported once, since each command is a forked process."""
