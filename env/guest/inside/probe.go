//go:build linux

package inside

import (
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

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

// target is an address that a container with a network can usually reach.
type target struct {
	network, address string
	// listens is set if a server is known to accept connections there.
	listens bool
}

// probeTargets lists the addresses to try.
func probeTargets() []target {
	targets := []target{
		{"tcp", "1.1.1.1:443", true}, {"tcp", "8.8.8.8:53", true}, {"tcp", "[2606:4700:4700::1111]:443", true},
	}
	if host := os.Getenv("KUBERNETES_SERVICE_HOST"); host != "" {
		targets = append(targets, target{"tcp", net.JoinHostPort(host, os.Getenv("KUBERNETES_SERVICE_PORT")), true})
	}
	for line := range fileLines("/proc/net/route") {
		f := strings.Fields(line)
		if len(f) > 2 && f[1] == "00000000" && f[2] != "00000000" {
			if raw, err := hex.DecodeString(f[2]); err == nil && len(raw) == 4 {
				gateway := net.IPv4(raw[3], raw[2], raw[1], raw[0]).String()
				targets = append(targets, target{"tcp", net.JoinHostPort(gateway, "53"), false},
					target{"tcp", net.JoinHostPort(gateway, "10250"), false})
			}
		}
	}
	for line := range fileLines("/etc/resolv.conf") {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "nameserver" {
			at := net.JoinHostPort(f[1], "53")
			targets = append(targets, target{"tcp", at, false}, target{"udp", at, false})
		}
	}
	return targets
}

// fileLines yields the lines of a file, or none if it cannot be read.
func fileLines(path string) iter.Seq[string] {
	data, _ := os.ReadFile(path)
	return strings.Lines(string(data))
}

// reach returns a target that answers, even if only to refuse the connection. Refusals mean nothing where a target
// that listens refuses, too: then it is a network policy that refuses in the names of all.
func reach(targets []target) string {
	got := make([]answer, len(targets))
	var done sync.WaitGroup
	for i, t := range targets {
		done.Go(func() { got[i] = t.try() })
	}
	done.Wait()
	return reached(targets, got)
}

func reached(targets []target, got []answer) string {
	policy, at := false, ""
	for i, t := range targets {
		policy = policy || t.listens && got[i] == refused
	}
	for i, t := range targets {
		if got[i] == accepted || got[i] == refused && !policy {
			at = t.network + " " + t.address
		}
	}
	return at
}

// answer is what comes back from a target.
type answer byte

const (
	nothing answer = iota
	refused        // by a reset
	accepted
)

// try returns what comes back from the target. A refusal by ICMP is no answer: network plugins such as kube-router's
// enforce a policy with it, while a host's own refusal of a TCP connection is a reset.
func (t target) try() answer {
	const wait = 1500 * time.Millisecond
	socket := -1
	// The connection's own socket is closed when it fails. A duplicate still tells why it failed.
	d := &net.Dialer{Timeout: wait, Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			socket, _ = syscall.Dup(int(fd)) // without one, a refusal counts as a reset
			keepICMP(socket)
		})
	}}
	conn, err := d.Dial(t.network, t.address)
	if socket >= 0 {
		defer syscall.Close(socket)
	}
	if err != nil {
		if t.network == "tcp" && errors.Is(err, syscall.ECONNREFUSED) && !gotICMP(socket) {
			return refused
		}
		return nothing
	}
	defer conn.Close()
	if t.network == "tcp" || query(conn, wait) == nil {
		return accepted
	}
	return nothing
}

// keepICMP has the kernel keep the ICMP messages that a socket gets.
func keepICMP(socket int) {
	// Where one of these is not known, its messages are not kept.
	_ = syscall.SetsockoptInt(socket, syscall.SOL_IP, syscall.IP_RECVERR, 1)
	_ = syscall.SetsockoptInt(socket, syscall.SOL_IPV6, syscall.IPV6_RECVERR, 1)
}

// gotICMP reports whether a socket got an ICMP message that the kernel kept. Kernels before 5.9 keep none for TCP.
func gotICMP(socket int) bool {
	_, _, flags, _, err := syscall.Recvmsg(socket, nil, make([]byte, 512), syscall.MSG_ERRQUEUE|syscall.MSG_DONTWAIT)
	return err == nil && flags&syscall.MSG_ERRQUEUE != 0
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
