//go:build linux

package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Paths of deepswe's own files in a bwrap sandbox.
const (
	guestPath = "/run/deepswe/guest"
	oomPath   = "/run/deepswe/oom"
	homePath  = "/tmp/home"
)

// crowded lists the directories below /etc that hold hundreds of files, none of them secret.
func crowded() []string { return []string{"alternatives", "ssl/certs"} }

// configuration lists what programs read in /etc, except for secrets. Patterns are allowed.
func configuration() []string {
	return []string{
		"alternatives", "ca-certificates", "ca-certificates.conf", "crypto-policies", "debian_version", "fonts", "gai.conf",
		"inputrc", "java-*", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "lsb-release", "magic", "maven",
		"mime.types", "nodejs", "os-release", "perl", "php", "pki/ca-trust", "pki/tls/certs", "pki/tls/cert.pem", "protocols",
		"python3*", "R", "services", "shells", "ssl/cert.pem", "ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone",
	}
}

// hostMounts returns the arguments that show the host's programs, the directories that they show, and the
// directories of PATH that exist in the sandbox.
func (b *Bwrap) hostMounts() (args, shown, seen []string) {
	show := func(path string) {
		args = append(args, parents(path)...)
		if target, err := os.Readlink(path); err == nil {
			args = append(args, "--symlink", target, path)
		} else {
			args = append(args, "--ro-bind", path, path)
		}
		shown = append(shown, path)
	}
	for _, dir := range append(system(), "/nix/store") {
		if _, err := os.Lstat(dir); err == nil {
			show(dir)
		}
	}
	for _, dir := range b.toolchain.roots() {
		if b.root || opens(dir, os.O_RDONLY) {
			show(dir)
		}
	}
	for _, dir := range b.toolchain.path {
		if withinAny(dir, shown...) {
			seen = append(seen, dir)
		}
	}
	return args, shown, seen
}

// parents creates the directories above a path, accessible to all users. By default, bwrap would copy the modes of
// the host's directories, which may deny access.
func parents(path string) []string {
	var args []string
	for i, c := range path {
		if c == '/' && i > 0 {
			args = append(args, "--perms", "0755", "--dir", path[:i])
		}
	}
	return args
}

// Some files of /etc differ between sandboxes. The shared /etc contains links to them.
const ownEtc = "/run/deepswe/etc"

// makeEtc creates the /etc that all sandboxes share, because mounting one directory is much faster than dozens of
// files. It returns the arguments of bwrap that mount it: its crowded directories are the host's, because copying
// hundreds of files takes longer than a mount.
func makeEtc(ctx context.Context, dir string) (mount []string, err error) {
	mount = []string{"--ro-bind", dir, "/etc"}
	whole := &tree{uid: -1, gid: -1}
	for _, pattern := range configuration() {
		files, _ := filepath.Glob(filepath.Join("/etc", pattern)) // the patterns are valid
		for _, from := range files {
			to := filepath.Join(dir, strings.TrimPrefix(from, "/etc"))
			if info, err := os.Lstat(from); err == nil && info.IsDir() && slices.Contains(crowded(), pattern) {
				if err := os.MkdirAll(to, 0o755); err != nil {
					return nil, err
				}
				mount = append(mount, "--ro-bind", from, from)
				continue
			}
			if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
				return nil, err
			}
			if err := whole.add(ctx, from, to); err != nil && !errors.Is(err, fs.ErrPermission) {
				return nil, err
			}
		}
	}
	err = writeFiles(dir, map[string]string{
		"hosts": "127.0.0.1 localhost deepswe\n::1 localhost ip6-localhost\n",
		// Names are resolved from files, and by DNS if there is a network.
		"nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n",
		"hostname":      "deepswe\n",
	})
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"passwd", "group", "resolv.conf"} {
		if err := os.Symlink(filepath.Join(ownEtc, name), filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	return mount, nil
}

// writeOwnEtc writes the files of /etc that differ between sandboxes.
func writeOwnEtc(dir string, uid, gid int, network bool) error {
	user, group := "", ""
	if uid != 0 {
		user = fmt.Sprintf("dev:x:%d:%d:deepswe:%s:/bin/bash\n", uid, gid, homePath)
	}
	if gid != 0 {
		group = fmt.Sprintf("dev:x:%d:\n", gid)
	}
	files := map[string]string{
		"passwd": "root:x:0:0:root:/root:/bin/sh\n" + user + "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		"group":  "root:x:0:\n" + group + "nogroup:x:65534:\n",
	}
	if network {
		resolvers, err := os.ReadFile("/etc/resolv.conf")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		files["resolv.conf"] = string(resolvers)
	}
	return writeFiles(dir, files)
}

// writeFiles creates a directory, if it does not exist, and files in it.
func writeFiles(dir string, files map[string]string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}
