/* What a probe needs of twinprobe. */
#ifndef TWINPROBE_H
#define TWINPROBE_H

#endif
