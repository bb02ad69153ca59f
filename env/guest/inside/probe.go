//go:build linux

package inside

import (
	"cmp"
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
	answers := make(chan string, len(targets))
	for _, t := range targets {
		go func() {
			if !answered(t) {
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

// answered reports whether a target answers. A refusal by ICMP is no answer: network plugins such as kube-router's
// enforce a policy with it, while a host's own refusal of a TCP connection is a reset.
func answered(target string) bool {
	const wait = 1500 * time.Millisecond
	network, address, _ := strings.Cut(target, " ")
	socket := -1
	// The connection's own socket is closed when it fails. A duplicate still tells why it failed.
	d := &net.Dialer{Timeout: wait, Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			socket, _ = syscall.Dup(int(fd)) // without one, a refusal counts as an answer
			keepICMP(socket)
		})
	}}
	conn, err := d.Dial(network, address)
	if socket >= 0 {
		defer syscall.Close(socket)
	}
	if err != nil {
		return network == "tcp" && errors.Is(err, syscall.ECONNREFUSED) && !gotICMP(socket)
	}
	defer conn.Close()
	return network == "tcp" || query(conn, wait) == nil
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
