//go:build linux

package inside

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"syscall"
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
