"""Texts: which words, sentences or sources a classifier or language model uses."""
