// Names of services by their port, for users who switch them on: a small table of the most common ports, by IANA and by
// convention.
const SERVICES: Record<number, string> = {
  20: "ftp-data", 21: "ftp", 22: "ssh", 23: "telnet", 25: "smtp", 53: "dns", 67: "dhcp", 68: "dhcp", 69: "tftp", 80: "http", 88: "kerberos", 110: "pop3",
  111: "rpcbind", 123: "ntp", 137: "netbios", 139: "netbios", 143: "imap", 161: "snmp", 162: "snmp-trap", 179: "bgp", 389: "ldap", 443: "https", 445: "smb",
  465: "smtps", 500: "ike", 514: "syslog", 546: "dhcpv6", 547: "dhcpv6", 587: "submission", 636: "ldaps", 853: "dns-tls", 873: "rsync", 993: "imaps", 995: "pop3s",
  1194: "openvpn", 1433: "mssql", 1521: "oracle", 1812: "radius", 1883: "mqtt", 2049: "nfs", 2055: "netflow", 2379: "etcd", 3128: "proxy", 3260: "iscsi", 3306: "mysql",
  3389: "rdp", 4222: "nats", 4317: "otlp", 4500: "ipsec-nat", 4739: "ipfix", 4789: "vxlan", 5001: "iperf", 5060: "sip", 5201: "iperf3", 5353: "mdns", 5432: "postgresql",
  5672: "amqp", 6081: "geneve", 6343: "sflow", 6379: "redis", 6443: "kubernetes", 8080: "http-alt", 8443: "https-alt", 8883: "mqtts", 9000: "clickhouse", 9042: "cassandra",
  9090: "prometheus", 9092: "kafka", 9100: "node-exporter", 9200: "elasticsearch", 9470: "twinprobe", 10250: "kubelet", 11211: "memcached", 27017: "mongodb", 51820: "wireguard",
};

/** Tells by the name of a column whether it has ports. */
export const isPort = (id: string) => /(^|[._])port$/i.test(id);

const PROTOCOLS: Record<number, string> = { 1: "ICMP", 2: "IGMP", 6: "TCP", 17: "UDP", 41: "IPv6", 47: "GRE", 50: "ESP", 51: "AH", 58: "ICMPv6", 89: "OSPF", 112: "VRRP", 132: "SCTP" };
const FLAGS = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"];

const isProtocol = (id: string) => /(^|[._])(ip_)?proto(col)?$/i.test(id);
const isFlags = (id: string) => /(^|[._])tcp_flags$/i.test(id);

/** Tells by the name of a column whether its numbers have names: ports, protocols of IP, flags of TCP. */
export const hasNames = (id: string) => isPort(id) || isProtocol(id) || isFlags(id);

/** A number with its name, by the name of its column: the usual service of a port, the protocol, the flags. */
export function numberText(id: string, value: unknown): string {
  const number = typeof value === "number" ? value : NaN;
  const name = isPort(id) ? SERVICES[number] : isProtocol(id) ? PROTOCOLS[number] : isFlags(id) ? FLAGS.filter((_, bit) => (number >> bit) & 1).join(" ") : "";
  return name ? `${number} ${name}` : String(value ?? "");
}
