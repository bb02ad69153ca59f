package run

// groups counts the attempts of each group that have not ended.
type groups struct {
	open map[string]*group
	// sized is set where the sizes were known beforehand. Otherwise more attempts may follow until another group
	// begins.
	sized   bool
	current *group
}

type group struct {
	name   string
	left   int  // attempts begun that have not ended
	closed bool // no attempt follows
	played bool // by this run, rather than found in the journal
	last   Job  // that ended
}

func newGroups(sizes map[string]int) groups {
	g := groups{open: make(map[string]*group), sized: sizes != nil}
	for name, n := range sizes {
		g.open[name] = &group{name: name, left: n, closed: true}
	}
	return g
}

// begin counts a job in. With the first one of a group it closes the group before, and reports whether that is done.
func (g *groups) begin(job Job, replayed bool) (last Job, done bool) {
	if g.sized {
		return Job{}, false
	}
	if g.current == nil || g.current.name != job.Group {
		last, done = g.close()
		g.current = g.open[job.Group]
		if g.current == nil {
			g.current = &group{name: job.Group}
			g.open[job.Group] = g.current
		}
		g.current.closed = false
	}
	if !replayed {
		g.current.left++
	}
	return last, done
}

// end counts a job out.
func (g *groups) end(job Job) (last Job, done bool) {
	c := g.open[job.Group]
	c.left--
	c.played, c.last = true, job
	return g.done(c)
}

// close ends the current group.
func (g *groups) close() (last Job, done bool) {
	c := g.current
	if c == nil {
		return Job{}, false
	}
	g.current, c.closed = nil, true
	return g.done(c)
}

// done forgets a group without a job to come, and reports whether it had one that was played.
func (g *groups) done(c *group) (last Job, done bool) {
	if !c.closed || c.left > 0 {
		return Job{}, false
	}
	delete(g.open, c.name)
	return c.last, c.played
}
