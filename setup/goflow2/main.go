// The reader of IPFIX in goflow2, for tests.
//
// goflow2 FILE: prints the flows of the messages in a file, as a list in JSON.
package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"log"
	"net/netip"
	"os"
	"time"

	"github.com/netsampler/goflow2/v2/decoders/netflow"
	"github.com/netsampler/goflow2/v2/producer"
	protoproducer "github.com/netsampler/goflow2/v2/producer/proto"
)

type flow struct {
	Source      netip.Addr `json:"source"`
	Destination netip.Addr `json:"destination"`
	Ports       [2]uint32  `json:"ports"`
	Protocol    uint32     `json:"protocol"`
	Packets     uint64     `json:"packets"`
	Octets      uint64     `json:"octets"`
	Tos         uint32     `json:"tos"`
	Flags       uint32     `json:"flags"`
	First       string     `json:"first"`
	Last        string     `json:"last"`
}

func moment(nanoseconds uint64) string {
	return time.Unix(0, int64(nanoseconds)).UTC().Format("2006-01-02 15:04:05.000")
}

func address(octets []byte) netip.Addr {
	found, _ := netip.AddrFromSlice(octets)
	return found
}

func main() {
	left, err := os.ReadFile(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	config, err := (&protoproducer.ProducerConfig{}).Compile()
	if err != nil {
		log.Fatal(err)
	}
	flows, err := protoproducer.CreateProtoProducer(config, protoproducer.CreateSamplingSystem)
	if err != nil {
		log.Fatal(err)
	}
	templates, found := netflow.CreateTemplateSystem(), []flow{}
	args := producer.ProduceArgs{Src: netip.MustParseAddrPort("127.0.0.1:1")}
	for len(left) >= 4 {
		length := int(binary.BigEndian.Uint16(left[2:]))
		var packet netflow.IPFIXPacket
		if err := netflow.DecodeMessageVersion(bytes.NewBuffer(left[:length]), templates, nil, &packet); err != nil {
			log.Fatal(err)
		}
		left = left[length:]
		messages, err := flows.Produce(&packet, &args)
		if err != nil {
			log.Fatal(err)
		}
		for _, message := range messages {
			m := message.(*protoproducer.ProtoProducerMessage)
			// Records about windows and gaps have no flow.
			if m.Packets == 0 {
				continue
			}
			found = append(found, flow{
				address(m.SrcAddr), address(m.DstAddr), [2]uint32{m.SrcPort, m.DstPort}, m.Proto,
				m.Packets, m.Bytes, m.IpTos, m.TcpFlags, moment(m.TimeFlowStartNs), moment(m.TimeFlowEndNs),
			})
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		log.Fatal(err)
	}
}
