"""Many runs from one file, on every device, resumable."""
