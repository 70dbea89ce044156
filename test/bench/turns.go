package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// turnsGroup makes many turns and looks at the repository after each.
func turnsGroup(s *suite) error {
	if s.wants("turns/from nothing") {
		if err := s.manyTurns("from nothing", 0, s.turns); err != nil {
			return err
		}
	}
	if !s.wants("turns/on a long session") {
		return nil
	}
	if s.turnsOn == 0 {
		s.skip("turns/on a long session", "left out of the quick form")
		return nil
	}
	return s.manyTurns("on a long session", s.nodes, s.turnsOn)
}

// manyTurns is a session of so many nodes, and so many turns more.
func (s *suite) manyTurns(what string, nodes, count int) (err error) {
	root, err := s.corpus("turns-"+what, 1, func(int) spec { return spec{commitID, nodes, 1500, repoFull} })
	if err != nil {
		return err
	}
	t, err := s.newTurns(root, "") // as it is by default
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close(), s.drop("turns-"+what)) }()
	c := repoCheck{s: s, dir: t.dir}
	every := 1
	if nodes > 0 {
		every = 10 // git status looks at each file
	}
	worst := 0.0
	for n := 1; n <= count; n++ {
		if err := s.ctx.Err(); err != nil {
			return err
		}
		if _, err := t.turn(); err != nil {
			return err
		}
		if n%every == 0 {
			c.clean(n)
		}
		if n%max(count/10, 1) == 0 {
			c.sound(n)
		}
		if n%max(count/4, 1) == 0 {
			size, packed, err := c.sizes()
			if err != nil {
				return err
			}
			worst = max(worst, size/(3*packed+64<<20))
		}
	}
	s.add(figure{Name: "turns/" + what + ", not clean after a turn", Unit: "", Bound: 0, Value: float64(len(c.findings)),
		Note: withFindings(fmt.Sprintf("git status, add -A -n after %d of %d turns, fsck --strict after %d", count/every, count, min(10, count)), c.findings)})
	s.add(figure{Name: "turns/" + what + ", .git between maintenances", Unit: "x", Bound: 1, Value: worst, Note: "of 3 times what git gc of a copy leaves, and 64 MiB"})
	return c.maintained(what, t)
}

// repoCheck asks Git about a repository.
type repoCheck struct {
	s        *suite
	dir      string
	findings []string
}

func (c *repoCheck) found(n int, what, text string, err error) {
	text = strings.TrimSpace(text)
	if err != nil {
		text += err.Error()
	}
	if text != "" {
		c.findings = append(c.findings, fmt.Sprintf("turn %d: %s: %.100s", n, what, text))
	}
}

// clean asks whether Git sees anything to do.
func (c *repoCheck) clean(n int) {
	out, err := c.s.output(c.dir, "git", "status", "--porcelain")
	c.found(n, "status", out, err)
	out, err = c.s.output(c.dir, "git", "add", "-A", "-n")
	c.found(n, "add -A -n", out, err)
}

// sound asks whether all objects are in order.
func (c *repoCheck) sound(n int) {
	// fsck lists the loose objects before it reads them; what the store packs in
	// between, in the background, it finds missing.
	var out string
	err := errors.New("not asked")
	for i := 0; i < 3 && (err != nil || out != ""); i++ {
		out, err = c.s.output(c.dir, "git", "fsck", "--strict", "--no-progress", "--no-dangling")
	}
	c.found(n, "fsck", out, err)
}

// sizes are what .git takes, and what a copy of it takes after git gc.
func (c *repoCheck) sizes() (now, packed float64, err error) {
	size, err := diskUse(filepath.Join(c.dir, ".git"))
	if err != nil {
		return 0, 0, err
	}
	copied, err := c.s.fresh("gc")
	if err != nil {
		return 0, 0, err
	}
	defer removeAll(copied, 0)
	copied = filepath.Join(copied, ".git") // without a work tree, which gc does not look at
	if err := c.s.command("", "cp", "-a", filepath.Join(c.dir, ".git"), copied); err != nil {
		return 0, 0, err
	}
	if err := c.s.git(c.s.base, "--git-dir="+copied, "gc", "-q"); err != nil {
		return 0, 0, err
	}
	least, err := diskUse(copied)
	return float64(size), float64(least), err
}

// maintained packs the repository as sessionfs does and compares its size.
func (c *repoCheck) maintained(what string, t *turns) error {
	if _, err := t.st.Compact(c.s.ctx, commitID); err != nil {
		return err
	}
	size, packed, err := c.sizes()
	if err != nil {
		return err
	}
	c.s.add(figure{Name: "turns/" + what + ", .git after maintenance", Unit: "x", Bound: 1.3, Value: size / packed,
		Note: fmt.Sprintf("%s MiB, git gc of a copy %s MiB", number(size/(1<<20)), number(packed/(1<<20)))})
	return nil
}
