class EagleDraftWorker:
    def draft(self, batch: object) -> int:
        return 3

    def _draft_extend_for_decode(self, batch: object) -> None:
        pass


class EAGLEWorkerV2:
    def verify(self, batch: object) -> int:
        return 3
