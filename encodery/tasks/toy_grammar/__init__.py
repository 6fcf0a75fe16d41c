"""The toy grammar: its words, its sentences, and the small tasks made of them."""
