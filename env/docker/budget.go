package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"deepswe/env/disk"
	"deepswe/env/fleet"
)

// ownImages are the images of a daemon that deepswe pulled, built or prepared, and may remove to keep to the budget.
type ownImages struct {
	d       *daemon
	mu      sync.Mutex
	pins    map[string]int       // how many starts in progress use an image
	touched map[string]time.Time // when the use of an image was last recorded
}

// record describes an image that deepswe pulled, built or prepared. Images without a record belong to the user, and
// are never removed to make room.
type record struct {
	Ref  string    `json:"ref"`
	Used time.Time `json:"used"`
}

// records is a file that maps image IDs to records. All processes of a user share it; there is one per daemon.
type records struct{ path string }

func (o *ownImages) records() records {
	facts, _ := o.d.known()
	if o.d.p.state == "" || facts.ID == "" {
		return records{}
	}
	return records{filepath.Join(o.d.p.state, "docker-images-"+fleet.ShortHash(facts.ID)+".json")}
}

// update changes the file under a lock and replaces it atomically, so that readers never see half of it.
func (r records) update(change func(map[string]record) (changed bool)) error {
	if r.path == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(r.path), 0o755); err != nil {
		return err
	}
	lock, err := disk.WaitLock(r.path + ".lock")
	if err != nil {
		return err
	}
	defer lock.Close()
	all, err := r.read()
	if err != nil || !change(all) {
		return err
	}
	return disk.WriteJSON(r.path, all)
}

func (r records) read() (map[string]record, error) {
	all := map[string]record{}
	if r.path == "" {
		return all, nil
	}
	if err := disk.ReadJSON(r.path, &all); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return all, nil
}

// pulled records that deepswe may remove an image, and removes others if the budget is exceeded.
func (o *ownImages) pulled(ctx context.Context, img image) {
	err := o.records().update(func(all map[string]record) bool {
		all[img.id] = record{Ref: img.ref, Used: time.Now().UTC()}
		return true
	})
	if err == nil && o.d.p.options.ImageBudget > 0 {
		o.pin(img)
		err = o.evict(ctx)
		o.unpin(img)
	}
	if err != nil && ctx.Err() == nil {
		o.d.p.log.Warn("cannot keep to the image budget", "host", o.d.host, "error", err)
	}
}

// used records that one of our images was used, at most once a minute.
func (o *ownImages) used(img image) {
	o.mu.Lock()
	fresh := time.Since(o.touched[img.id]) < time.Minute
	if !fresh {
		o.touched[img.id] = time.Now()
	}
	o.mu.Unlock()
	if fresh {
		return
	}
	err := o.records().update(func(all map[string]record) bool {
		// The image may be the work of a run that was killed, or of another user.
		if _, ours := all[img.id]; !ours && !derived(img.ref) {
			return false
		}
		all[img.id] = record{Ref: img.ref, Used: time.Now().UTC()}
		return true
	})
	if err != nil {
		o.d.p.log.Warn("cannot record when an image was used", "error", err)
	}
}

// pin protects an image from evict until unpin, while a container is being created from it.
func (o *ownImages) pin(img image) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pins[img.id]++
}

func (o *ownImages) unpin(img image) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.pins[img.id]--; o.pins[img.id] <= 0 {
		delete(o.pins, img.id)
	}
}

// evict removes our images, least recently used first, until all images of the daemon fit into the budget.
func (o *ownImages) evict(ctx context.Context) error {
	all, err := o.records().read()
	if err != nil {
		return err
	}
	oldestFirst := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(all[a].Used.Compare(all[b].Used), cmp.Compare(a, b))
	})
	for _, id := range oldestFirst {
		usage, err := o.d.cli.DiskUsage(ctx, client.DiskUsageOptions{Images: true})
		if err != nil || usage.Images.TotalSize <= o.d.p.options.ImageBudget {
			return err
		}
		o.mu.Lock()
		pinned := o.pins[id] > 0
		o.mu.Unlock()
		if pinned {
			continue
		}
		removed, err := o.remove(ctx, all[id].Ref, id)
		if err != nil {
			return err
		}
		if removed {
			o.d.p.log.Info("removed an image to keep to the image budget", "image", all[id].Ref, "last used", all[id].Used)
		}
	}
	return nil
}

// remove removes one name of an image, and the image itself with its last name, and deletes its record. It
// does not remove an image that a container uses.
func (o *ownImages) remove(ctx context.Context, ref, id string) (removed bool, err error) {
	_, err = o.d.cli.ImageRemove(ctx, ref, client.ImageRemoveOptions{PruneChildren: true})
	if errdefs.IsConflict(err) {
		return false, nil
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return false, fmt.Errorf("image %s: %w", ref, err)
	}
	o.d.images.drop(id)
	return err == nil, o.records().update(func(all map[string]record) bool {
		_, known := all[id]
		delete(all, id)
		return known
	})
}
