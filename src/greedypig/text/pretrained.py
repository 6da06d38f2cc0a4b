"""placeholder"""
NAMES=("smollm2-135m-instruct","minilm-imdb")
def folder_of(name):
    from pathlib import Path
    return Path.home()/".cache/greedypig"/name
