"""Pages that show where a step goes: one HTML file each, whole in itself."""

from bubblescope.view.pages import ablation_page, comparison_page, diagnosis_page
from bubblescope.view.recording import Shown

__all__ = ["Shown", "ablation_page", "comparison_page", "diagnosis_page"]
