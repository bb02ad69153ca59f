//go:build linux

package inside

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// The values of --network.
const (
	networkDelete = "delete" // remove every interface but the loopback
	networkProbe  = "probe"  // check that no connection gets out
)

type link struct {
	index int32
	name  string
	flags uint32
}

func (l link) open() bool { return l.flags&syscall.IFF_LOOPBACK == 0 && l.flags&syscall.IFF_UP != 0 }

// links lists the network interfaces.
func links() ([]link, error) {
	rib, err := syscall.NetlinkRIB(syscall.RTM_GETLINK, syscall.AF_UNSPEC)
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	messages, err := syscall.ParseNetlinkMessage(rib)
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	var all []link
	for i := range messages {
		m := &messages[i]
		if m.Header.Type != syscall.RTM_NEWLINK || len(m.Data) < syscall.SizeofIfInfomsg {
			continue
		}
		info := (*syscall.IfInfomsg)(unsafe.Pointer(&m.Data[0]))
		l := link{index: info.Index, flags: info.Flags, name: fmt.Sprint(info.Index)}
		if attributes, err := syscall.ParseNetlinkRouteAttr(m); err == nil {
			for _, a := range attributes {
				if a.Attr.Type == syscall.IFLA_IFNAME {
					l.name = strings.TrimRight(string(a.Value), "\x00")
				}
			}
		}
		all = append(all, l)
	}
	return all, nil
}

// deleteInterfaces deletes every interface but the loopback. One that cannot be deleted, such as those that the
// kernel creates in every namespace, is taken down; commands lack the privilege to bring it up.
func deleteInterfaces() error {
	all, err := links()
	if err != nil {
		return err
	}
	failures := map[int32]error{}
	for _, l := range all {
		if l.flags&syscall.IFF_LOOPBACK != 0 {
			continue
		}
		if err := changeLink(syscall.RTM_DELLINK, l.index); err != nil {
			failures[l.index] = errors.Join(err, changeLink(syscall.RTM_SETLINK, l.index))
		}
	}
	if all, err = links(); err != nil {
		return err
	}
	for _, l := range all {
		if l.open() {
			return fmt.Errorf("the interface %s cannot be removed: %w", l.name, errors.Join(failures[l.index], syscall.EBUSY))
		}
	}
	return nil
}

// changeLink deletes an interface, or takes it down.
func changeLink(kind uint16, index int32) error {
	socket, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, syscall.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer syscall.Close(socket)
	if err := syscall.SetsockoptTimeval(socket, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO,
		&syscall.Timeval{Sec: 5}); err != nil {
		return err
	}
	request := struct {
		syscall.NlMsghdr
		syscall.IfInfomsg
	}{
		syscall.NlMsghdr{Type: kind, Flags: syscall.NLM_F_REQUEST | syscall.NLM_F_ACK, Seq: 1},
		syscall.IfInfomsg{Family: syscall.AF_UNSPEC, Index: index},
	}
	request.Len = uint32(unsafe.Sizeof(request))
	if kind == syscall.RTM_SETLINK {
		request.Change = syscall.IFF_UP // cleared
	}
	raw := unsafe.Slice((*byte)(unsafe.Pointer(&request)), unsafe.Sizeof(request))
	if err := syscall.Sendto(socket, raw, 0, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := syscall.Recvfrom(socket, answer, 0)
	if err != nil {
		return err
	}
	messages, err := syscall.ParseNetlinkMessage(answer[:n])
	if err != nil {
		return err
	}
	for _, m := range messages {
		if m.Header.Type == syscall.NLMSG_ERROR && len(m.Data) >= 4 {
			if code := int32(binary.NativeEndian.Uint32(m.Data)); code != 0 {
				return syscall.Errno(-code)
			}
			return nil
		}
	}
	return errors.New("the kernel did not answer")
}

// probeFor is how long a network policy may take to become effective.
const probeFor = 10 * time.Second

// probeNetwork tries to connect to the outside until nothing answers any more, for at most patience.
func probeNetwork(patience time.Duration) error {
	targets := probeTargets()
	for deadline := time.Now().Add(patience); ; time.Sleep(500 * time.Millisecond) {
		all, err := links()
		if err != nil {
			return err
		}
		reached := ""
		if slices.ContainsFunc(all, link.open) {
			reached = reach(targets)
		}
		if reached == "" {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s answers: no network policy is enforced for this pod", reached)
		}
	}
}

// probeTargets lists what a container with a network can usually reach, as "tcp address" or "udp address".
func probeTargets() []string {
	targets := []string{"tcp 1.1.1.1:443", "tcp 8.8.8.8:53", "tcp [2606:4700:4700::1111]:443"}
	if host := os.Getenv("KUBERNETES_SERVICE_HOST"); host != "" {
		targets = append(targets, "tcp "+net.JoinHostPort(host, os.Getenv("KUBERNETES_SERVICE_PORT")))
	}
	for line := range fileLines("/proc/net/route") {
		f := strings.Fields(line)
		if len(f) > 2 && f[1] == "00000000" && f[2] != "00000000" {
			if raw, err := hex.DecodeString(f[2]); err == nil && len(raw) == 4 {
				gateway := net.IPv4(raw[3], raw[2], raw[1], raw[0]).String()
				targets = append(targets, "tcp "+net.JoinHostPort(gateway, "53"), "tcp "+net.JoinHostPort(gateway, "10250"))
			}
		}
	}
	for line := range fileLines("/etc/resolv.conf") {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "nameserver" {
			at := net.JoinHostPort(f[1], "53")
			targets = append(targets, "tcp "+at, "udp "+at)
		}
	}
	return targets
}

// fileLines yields the lines of a file, or none if it cannot be read.
func fileLines(path string) iter.Seq[string] {
	data, _ := os.ReadFile(path)
	return strings.Lines(string(data))
}

// reach returns a target that answers, even if only to refuse the connection.
func reach(targets []string) string {
	const wait = 1500 * time.Millisecond
	answers := make(chan string, len(targets))
	for _, t := range targets {
		go func() {
			network, address, _ := strings.Cut(t, " ")
			conn, err := (&net.Dialer{Timeout: wait}).Dial(network, address)
			if err == nil && network == "udp" {
				err = query(conn, wait)
			}
			if conn != nil {
				conn.Close()
			}
			if err != nil && !errors.Is(err, syscall.ECONNREFUSED) {
				t = ""
			}
			answers <- t
		}()
	}
	reached := ""
	for range targets {
		reached = cmp.Or(<-answers, reached)
	}
	return reached
}

// query sends a DNS query for the root's name servers and waits for an answer.
func query(conn net.Conn, wait time.Duration) error {
	if err := conn.SetDeadline(time.Now().Add(wait)); err != nil {
		return err
	}
	// ID, flags (recursion desired), one question, and the question: the name servers of the root.
	if _, err := conn.Write([]byte{1, 2, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1}); err != nil {
		return err
	}
	_, err := conn.Read(make([]byte, 512))
	return err
}
