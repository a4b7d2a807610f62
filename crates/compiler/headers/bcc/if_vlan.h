/* The structs of the kernel's own linux/if_vlan.h. The one for user space lacks them. */
#include_next <linux/if_vlan.h>

#ifndef TWINPROBE_BCC_IF_VLAN_H
#define TWINPROBE_BCC_IF_VLAN_H

#include <linux/types.h>

struct vlan_hdr {
	__be16 h_vlan_TCI;
	__be16 h_vlan_encapsulated_proto;
};

struct vlan_ethhdr {
	unsigned char h_dest[6];
	unsigned char h_source[6];
	__be16 h_vlan_proto;
	__be16 h_vlan_TCI;
	__be16 h_vlan_encapsulated_proto;
};

#define VLAN_PRIO_MASK 0xe000
#define VLAN_PRIO_SHIFT 13
#define VLAN_VID_MASK 0x0fff

#endif
