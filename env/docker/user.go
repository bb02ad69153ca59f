package docker

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"

	"deepswe/env"
)

// user is whom commands run as. The guest finds the user's home and name in the image by itself.
type user struct{ uid, gid int }

// agent is the user of a repository that we copy in: not root, so that commands are not the guest's user.
func agentUser() user { return user{1000, 1000} }

// commandUser decides whom the commands of a sandbox run as: the image's user where that is not root; else, where the
// repository is copied in, and so can belong to anybody, a user of our own; else root, without any of root's powers.
func (d *daemon) commandUser(ctx context.Context, img image, s env.Spec) (user, error) {
	if name, _, _ := strings.Cut(img.user, ":"); name == "" || name == "root" || name == "0" {
		if s.CopyIn != "" {
			return agentUser(), nil
		}
		return user{}, nil
	}
	d.mu.Lock()
	known, ok := d.users[img.id]
	d.mu.Unlock()
	if ok {
		return known, nil
	}
	passwd, err := d.readFromImage(ctx, img, "/etc/passwd")
	if err != nil {
		return user{}, err
	}
	group, err := d.readFromImage(ctx, img, "/etc/group")
	if err != nil {
		return user{}, err
	}
	u, err := lookupUser(img.user, passwd, group)
	if err != nil {
		return user{}, fmt.Errorf("image %s: %w", img.ref, err)
	}
	d.mu.Lock()
	d.users[img.id] = u
	d.mu.Unlock()
	return u, nil
}

// lookupUser resolves an image's User ("name", "uid", either with ":group" or ":gid") the way a container's start does.
func lookupUser(spec string, passwd, group []byte) (user, error) {
	name, groupName, hasGroup := strings.Cut(spec, ":")
	u := user{uid: -1}
	if uid, err := strconv.Atoi(name); err == nil && uid >= 0 {
		u.uid = uid
	}
	for fields := range entries(passwd, 4) {
		uid, err := strconv.Atoi(fields[2])
		gid, gidErr := strconv.Atoi(fields[3])
		if err != nil || gidErr != nil || (fields[0] != name && uid != u.uid) {
			continue
		}
		u = user{uid, gid}
		break
	}
	if u.uid < 0 {
		return user{}, fmt.Errorf("its user %q is not in its /etc/passwd", name)
	}
	if !hasGroup {
		return u, nil
	}
	if gid, err := strconv.Atoi(groupName); err == nil && gid >= 0 {
		u.gid = gid
		return u, nil
	}
	for fields := range entries(group, 3) {
		if gid, err := strconv.Atoi(fields[2]); err == nil && fields[0] == groupName {
			u.gid = gid
			return u, nil
		}
	}
	return user{}, fmt.Errorf("its group %q is not in its /etc/group", groupName)
}

// entries yields the lines of a passwd or group file that have at least n fields.
func entries(file []byte, n int) func(func([]string) bool) {
	return func(yield func([]string) bool) {
		lines := bufio.NewScanner(bytes.NewReader(file))
		for lines.Scan() {
			if fields := strings.Split(lines.Text(), ":"); len(fields) >= n && !yield(fields) {
				return
			}
		}
	}
}
