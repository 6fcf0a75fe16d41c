"""What the fault suite shares: all that is heavy is imported once, since each command is a forked process."""

import encodery.classifier
import encodery.curve
import encodery.embed
import encodery.gradts.study
import encodery.heads
import encodery.look
import encodery.prepare
import encodery.report.page.build
import encodery.run
import encodery.sweep.execute
import encodery.sweep.search  # noqa: F401
