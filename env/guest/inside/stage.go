//go:build linux

package inside

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"deepswe/env/guest"
)

// Numbers of system calls that package syscall lacks. They are the same on every architecture.
const (
	sysOpenTree     = 428
	sysMoveMount    = 429
	sysMountSetattr = 442
)

const atWorkingDir = ^uintptr(99) // AT_FDCWD, -100

// runStage makes the mounts of a stage and executes the program; without a program, it only tries the mounts. It
// must be started in namespaces of its own.
func runStage(from int, program []string) error {
	runtime.LockOSThread() // capabilities are per thread
	file := os.NewFile(uintptr(from), "stage")
	var stage guest.Stage
	err := json.NewDecoder(file).Decode(&stage)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("read the stage: %w", err)
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts private: %w", err)
	}
	for _, v := range stage.Views {
		if err := view(v, stage.Shift); err != nil {
			return fmt.Errorf("show %s: %w", v.From, err)
		}
	}
	for _, l := range stage.Overlays {
		if err := overlay(l, stage.Plain); err != nil {
			return fmt.Errorf("mount an overlay: %w", err)
		}
	}
	if stage.Shift > 0 {
		syscall.CloseOnExec(stage.Shift)
	}
	if len(program) == 0 {
		return nil
	}
	if stage.Plain {
		if err := dropAmbient(); err != nil {
			return err
		}
	}
	err = syscall.Exec(program[0], program, os.Environ())
	return fmt.Errorf("start %s: %w", program[0], err)
}

// overlay mounts an overlay. In a user namespace, it stores its marks in attributes that need no privilege.
func overlay(l guest.Layers, user bool) error {
	own := "redirect_dir=on,index=off,metacopy=off"
	if user {
		own = "userxattr"
	}
	options := []string{own, "lowerdir=" + strings.Join(l.Lower, ":"), "upperdir=" + l.Upper, "workdir=" + l.Work}
	for _, path := range append([]string{l.Upper, l.Work}, l.Lower...) {
		if strings.ContainsAny(path, `,:\`) {
			return fmt.Errorf("%q contains a character that overlay mount options use as a separator", path)
		}
	}
	return syscall.Mount("overlay", l.To, "overlay", 0, strings.Join(options, ","))
}

// view mounts a part of the file system read-only at another place.
func view(v guest.View, shift int) error {
	const (
		cloneTree, recursive, emptyPath = 1, 0x8000, 0x1000
		moveEmptyPath                   = 4
	)
	attributes := struct{ set, clear, propagation, userNamespace uint64 }{set: 1} // MOUNT_ATTR_RDONLY
	flags := uintptr(cloneTree | syscall.O_CLOEXEC | recursive)
	if v.Shift {
		attributes.set |= 0x100000 // MOUNT_ATTR_IDMAP
		attributes.userNamespace = uint64(shift)
		flags &^= recursive
	}
	from, err := syscall.BytePtrFromString(v.From)
	if err != nil {
		return err
	}
	to, err := syscall.BytePtrFromString(v.To)
	if err != nil {
		return err
	}
	tree, _, errno := syscall.Syscall(sysOpenTree, atWorkingDir, uintptr(unsafe.Pointer(from)), flags)
	if errno != 0 {
		return fmt.Errorf("open_tree: %w", errno)
	}
	defer syscall.Close(int(tree))
	var empty byte
	name := uintptr(unsafe.Pointer(&empty))
	_, _, errno = syscall.Syscall6(sysMountSetattr, tree, name, emptyPath|flags&recursive,
		uintptr(unsafe.Pointer(&attributes)), unsafe.Sizeof(attributes), 0)
	if errno != 0 {
		return fmt.Errorf("mount_setattr: %w", errno)
	}
	_, _, errno = syscall.Syscall6(sysMoveMount, tree, name, atWorkingDir, uintptr(unsafe.Pointer(to)), moveEmptyPath, 0)
	if errno != 0 {
		return fmt.Errorf("move_mount: %w", errno)
	}
	return nil
}

// dropAmbient prevents the program that the calling thread executes next from inheriting capabilities.
func dropAmbient() error {
	const ambient, clearAll = 47, 4
	if err := prctl(ambient, clearAll, 0); err != nil {
		return fmt.Errorf("drop ambient capabilities: %w", err)
	}
	return setCapabilities(false)
}
