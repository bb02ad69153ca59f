// Command attack tries, from inside a sandbox, what a shell cannot express, and prints "done" if it succeeds where it
// should not.
package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

func main() {
	if len(os.Args) < 2 {
		os.Exit(2)
	}
	switch os.Args[1] {
	case "network":
		network()
	case "loopback":
		loopback()
	case "userns":
		userNamespace()
	case "ptrace":
		trace()
	case "memory":
		memory()
	case "limits":
		limits()
	case "signals":
		signals()
	case "async":
		async()
	case "descriptors":
		descriptors()
	case "allocate":
		megabytes, _ := strconv.Atoi(os.Args[2])
		allocate(megabytes)
	case "reserve":
		reserve()
	case "families":
		families()
	case "nest":
		nest()
	case "spin":
		spin()
	case "fork":
		most, _ := strconv.Atoi(os.Args[2])
		fork(most)
	default:
		os.Exit(2)
	}
}

func report(what string, errno error) {
	if errno == nil {
		fmt.Println(what, "done")
	} else {
		fmt.Println(what, errno)
	}
}

func call(number uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	if _, _, errno := syscall.Syscall6(number, a[0], a[1], a[2], a[3], a[4], a[5]); errno != 0 {
		return errno
	}
	return nil
}

// tasks returns the IDs of the guest's threads.
func tasks() []uintptr {
	entries, _ := os.ReadDir("/proc/1/task")
	var all []uintptr
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			all = append(all, uintptr(n))
		}
	}
	return all
}

func network() {
	for _, address := range []string{"192.0.2.1:80", "1.1.1.1:53", "169.254.169.254:80", "172.17.0.1:22", "10.0.0.1:80"} {
		for _, kind := range []string{"tcp", "udp"} {
			c, err := net.DialTimeout(kind, address, time.Second)
			if err != nil {
				fmt.Println(kind, address, err)
				continue
			}
			c.Close()
			fmt.Println(kind, address, "open")
		}
	}
	if fd, err := syscall.Socket(syscall.AF_PACKET, syscall.SOCK_RAW, 0); err == nil {
		syscall.Close(fd)
		fmt.Println("raw socket open")
	}
	// Abstract Unix sockets belong to the network's namespace.
	for _, name := range []string{"@/tmp/.X11-unix/X0", "@/tmp/dbus"} {
		if c, err := net.Dial("unix", name); err == nil {
			c.Close()
			fmt.Println(name, "open")
		}
	}
}

func loopback() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	go func() {
		if c, err := l.Accept(); err == nil {
			c.Write([]byte("ok\n"))
			c.Close()
		}
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	buf := make([]byte, 3)
	c.Read(buf)
	fmt.Print(string(buf))
}

func userNamespace() {
	ways := map[string]func() error{
		"clone": func() error {
			cmd := exec.Command("/proc/self/exe")
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
			err := cmd.Run()
			if _, ran := err.(*exec.ExitError); ran {
				return nil
			}
			return err
		},
		"clone3": func() error {
			args := struct {
				flags uint64
				rest  [10]uint64
			}{flags: syscall.CLONE_NEWUSER}
			args.rest[3] = uint64(syscall.SIGCHLD)
			pid, _, errno := syscall.RawSyscall(435, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args), 0)
			if errno != 0 {
				return errno
			}
			if pid == 0 {
				syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
			}
			return nil
		},
	}
	refused := true
	for name, try := range ways {
		if err := try(); err == nil {
			fmt.Println(name, "done")
			refused = false
		}
	}
	if refused {
		fmt.Println("refused")
	}
}

func trace() {
	const attach, seize = 16, 0x4206
	for _, tid := range tasks() {
		if err := call(syscall.SYS_PTRACE, attach, tid, 0, 0); err == nil {
			report("attach", nil)
		}
		if err := call(syscall.SYS_PTRACE, seize, tid, 0, 0); err == nil {
			report("seize", nil)
		}
	}
}

func memory() {
	const readv, writev, pidfdOpen, pidfdGetfd = 310, 311, 434, 438
	var buf [64]byte
	local := syscall.Iovec{Base: &buf[0], Len: 64}
	for _, at := range []uintptr{0x400000, 0xc000000000} {
		remote := syscall.Iovec{Base: (*byte)(unsafe.Pointer(at)), Len: 64} //nolint:govet // another process's address
		for name, number := range map[string]uintptr{"process_vm_readv": readv, "process_vm_writev": writev} {
			report(name, call(number, 1, uintptr(unsafe.Pointer(&local)), 1, uintptr(unsafe.Pointer(&remote)), 1, 0))
		}
	}
	fd, _, errno := syscall.Syscall(pidfdOpen, 1, 0, 0)
	if errno == 0 {
		for n := range uintptr(10) {
			report("pidfd_getfd", call(pidfdGetfd, fd, n, 0))
		}
	}
}

func limits() {
	const prlimit, processor, files, size = 302, 0, 7, 1
	for _, tid := range append(tasks(), 1) {
		for _, resource := range []uintptr{processor, files, size, 3, 9} {
			zero := [2]uint64{0, 0}
			if err := call(prlimit, tid, resource, uintptr(unsafe.Pointer(&zero)), 0); err == nil {
				report("prlimit", nil)
			}
		}
	}
	// A process may change its own limits.
	own := [2]uint64{100, 100}
	if err := call(prlimit, 0, files, uintptr(unsafe.Pointer(&own)), 0); err != nil {
		fmt.Println("own limit", err, "was not done")
	}
}

// signals forges the siginfo of a fault: the Go runtime believes it.
func signals() {
	const tgqueue, pidfdOpen, pidfdSend = 297, 434, 424
	for signal := uintptr(1); signal <= 64; signal++ {
		for _, code := range []int32{-1, -2, -3, -4, -5, -60, 1, 2} {
			info := [16]uint64{}
			*(*int32)(unsafe.Pointer(&info[0])) = int32(signal)
			*(*int32)(unsafe.Add(unsafe.Pointer(&info), 8)) = code
			at := uintptr(unsafe.Pointer(&info))
			call(syscall.SYS_RT_SIGQUEUEINFO, 1, signal, at)
			for _, tid := range tasks() {
				call(tgqueue, 1, tid, signal, at)
				call(syscall.SYS_RT_SIGQUEUEINFO, tid, signal, at)
				call(syscall.SYS_TKILL, tid, signal)
				call(syscall.SYS_TGKILL, 1, tid, signal)
			}
			if fd, _, errno := syscall.Syscall(pidfdOpen, 1, 0, 0); errno == 0 {
				call(pidfdSend, fd, signal, at, 0)
				call(pidfdSend, fd, signal, 0, 0)
				syscall.Close(int(fd))
			}
		}
	}
}

// async makes the kernel send signals on the program's behalf: when a pipe becomes readable.
func async() {
	const setOwner, setSignal = 8, 10
	for signal := uintptr(1); signal <= 64; signal++ {
		for _, to := range append(tasks(), 1) {
			var p [2]int
			if syscall.Pipe(p[:]) != nil {
				return
			}
			call(syscall.SYS_FCNTL, uintptr(p[0]), setOwner, to)
			call(syscall.SYS_FCNTL, uintptr(p[0]), setSignal, signal)
			call(syscall.SYS_FCNTL, uintptr(p[0]), syscall.F_SETFL, syscall.O_ASYNC|syscall.O_NONBLOCK)
			syscall.Write(p[1], []byte("x"))
			syscall.Close(p[0])
			syscall.Close(p[1])
		}
	}
}

func descriptors() {
	for n := range 32 {
		for _, flag := range []int{os.O_RDONLY, os.O_WRONLY} {
			if f, err := os.OpenFile(fmt.Sprintf("/proc/1/fd/%d", n), flag|syscall.O_NONBLOCK, 0); err == nil {
				f.Close()
				fmt.Println("descriptor", n, "done")
			}
		}
		if n > 2 {
			var stat syscall.Stat_t
			if syscall.Fstat(n, &stat) == nil && stat.Mode&syscall.S_IFMT == syscall.S_IFIFO {
				fmt.Println("inherited a pipe as descriptor", n, "done")
			}
		}
	}
}

func allocate(megabytes int) {
	data := make([]byte, megabytes<<20)
	for i := 0; i < len(data); i += 4096 {
		data[i] = 1
	}
	fmt.Println("allocated")
	_ = data[len(data)-1]
}

func spin() {
	began := time.Now()
	for time.Since(began) < 1500*time.Millisecond {
	}
	wall := time.Since(began)
	var used syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	cpu := time.Duration(used.Utime.Nano() + used.Stime.Nano())
	fmt.Printf("share %.2f\n", cpu.Seconds()/wall.Seconds())
}

func fork(most int) {
	var started []*os.Process
	defer func() {
		for _, p := range started {
			p.Kill()
			p.Wait()
		}
	}()
	for i := range most {
		p, err := os.StartProcess("/bin/sleep", []string{"sleep", "100"}, &os.ProcAttr{})
		if err != nil {
			fmt.Println("refused after", i, err)
			return
		}
		started = append(started, p)
	}
	fmt.Println("started", most)
}

// reserve takes room for a file without writing a byte of it.
func reserve() {
	f, err := os.Create("reserved")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.Remove("reserved")
	const size = 1 << 30
	for _, mode := range []uint32{0, 1, 0x10} { // plainly, beyond the file's end, with zeros
		report(fmt.Sprintf("fallocate %#x", mode), syscall.Fallocate(int(f.Fd()), mode, 0, size))
	}
	space := struct {
		kind, whence  int16
		start, length int64
		id, pid       int32
		reserved      [4]int32
	}{length: size}
	for _, request := range []uintptr{0x40305828, 0x4030582a, 0x40305839} {
		report(fmt.Sprintf("ioctl %#x", request),
			call(syscall.SYS_IOCTL, f.Fd(), request, uintptr(unsafe.Pointer(&space))))
	}
}

// families opens sockets of every family that a sandbox has no use for.
func families() {
	for family := range 64 {
		switch family {
		case syscall.AF_UNIX, syscall.AF_INET, syscall.AF_INET6, syscall.AF_NETLINK:
			continue
		}
		for _, kind := range []int{syscall.SOCK_STREAM, syscall.SOCK_DGRAM, syscall.SOCK_RAW, syscall.SOCK_SEQPACKET} {
			if fd, err := syscall.Socket(family, kind, 0); err == nil {
				fmt.Println("family", family, "open")
				syscall.Close(fd)
			}
		}
	}
}

// nest makes directories in directories, deeper than any path, and waits to be stopped. There are more levels than a
// process that removes them may have open files.
func nest() {
	for i := range 5000 {
		if os.Mkdir("deeper", 0o755) != nil || os.Chdir("deeper") != nil {
			fmt.Println("refused after", i)
			return
		}
	}
	time.Sleep(time.Hour)
}
