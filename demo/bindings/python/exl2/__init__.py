"""exl2: language models in the EXL2 format, by the engine of exl2.h.

    import exl2

    with exl2.Engine() as engine, engine.load("models/smollm2-135m-instruct") as model:
        for piece in model.generate("Once upon a time", max_tokens=64):
            print(piece, end="", flush=True)

The names and meanings of settings are those of exl2.h, whose comments are the manual.
"""

from ._abi import CONTINUE, OFF, PAUSE_JOB, STOP_JOB, Exl2Error
from ._engine import Engine, Grammar, Job, Model, Session, Token

__all__ = ["CONTINUE", "Engine", "Exl2Error", "Grammar", "Job", "Model", "OFF", "PAUSE_JOB", "STOP_JOB", "Session",
           "Token"]
__version__ = "0.2.0"
