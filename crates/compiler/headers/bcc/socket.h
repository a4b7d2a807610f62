/* The part of sys/socket.h that the kernel's user-space headers need. */
#ifndef TWINPROBE_BCC_SOCKET_H
#define TWINPROBE_BCC_SOCKET_H

struct sockaddr {
	unsigned short sa_family;
	char sa_data[14];
};

#define AF_INET 2
#define AF_INET6 10

#endif
