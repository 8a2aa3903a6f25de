"""Timeline -> dependency graph -> what-if: the step without this wait, launch or gap."""

from bubblescope.predict.graph import Graph
from bubblescope.predict.model import Prediction
from bubblescope.predict.prediction import predict
from bubblescope.predict.whatifs import WhatIf, parse

__all__ = ["Graph", "Prediction", "WhatIf", "parse", "predict"]
