package conformance

import (
	"slices"
	"strings"

	"github.com/sessionfs/sessionfs/store"
)

// stated is the right list of a store whose recorded list is not the disk's.
// The lists are written out, so that the rules of list_test.go are held to
// something that was not computed by them.
type stated struct {
	// order is list_sessions with archived ones, as far as updated_at fixes
	// it; ids are cut to what tells them apart, the recorded suffix left out.
	order []string
	// somewhere are listed too; no file says when they were last active.
	somewhere []string
	// status names rows whose status the recorded list has otherwise.
	status map[string]string
}

var statedLists = map[string]stated{
	// The registry lacks local_ok_089c27da, which is listed from its
	// meta.json. The rows vanished and vanished_new have no directory and no
	// recorded location: not listed. local_ok_5eccd015's row has no
	// updated_at, local_ok_56d7b9de's title is stale: meta.json has both.
	"index_stale": {order: []string{"local_ok_fa40c39d", "local_ok_5eccd015", "local_ok_56d7b9de", "local_ok_089c27da"}},
	// A registry of {} is taken at its word by the peer; here the four
	// sessions on disk are the list.
	"index_empty_object": {order: []string{"local_ok_5f562f74", "local_ok_fddde448", "local_ok_9d7e8653", "local_ok_541c6a27"}},
	// Rebuilt. local_nohist is restored from Git and local_emptyhist has its
	// history in Git: neither is a shell. local_noid goes by its directory's
	// name, not by "". local_otherid names another session, local_nometa and
	// local_badmeta have no readable meta.json, local_link is a symlink: the
	// directory's name is their id. A dangling link, a directory without
	// history/ and meta.json, and stray files are no sessions.
	"index_missing": {
		order: []string{
			"local_preview_1222ca9a", "local_wasrunning_85ae49e7", "local_real_8146050e", "local_nogit_8b772bf3",
			"local_emptyhist_86877ee2", "local_nohist_94310707", "local_noid_ae22337c", "local_ok_6fd53bad",
			"local_ok_b4c2e212", "local_ok_475a45da", "local_ok_0298d2db",
		},
		somewhere: []string{"local_otherid_36af8d1d", "local_nometa_97ffeabc", "local_badmeta_1eee81dc", "local_link"},
		status:    map[string]string{"local_wasrunning_85ae49e7": "interrupted"},
	},
	// The registry is good. row_without_dir is not listed; local_nohist is
	// restored from Git, local_emptyhist stays; the rows of local_link,
	// local_otherid, local_nometa and local_badmeta stand, because no
	// meta.json can be trusted for their directories.
	"broken_layout": {order: []string{
		"local_link", "local_real_ad79ea25", "local_nogit_8dd3a602", "local_emptyhist_6dd83a8e", "local_nohist_a4a815c6",
		"local_otherid_d074a4fe", "local_noid_03b60b59", "local_badmeta_0a450bc3", "local_nometa_7ea25110",
		"local_ok_5f7b5eb2", "local_ok_12fe5d0e", "local_ok_f8485f8f", "local_ok_6eb34978",
	}},
	// Nothing goes: the shells have an empty history/, which keeps a session;
	// local_workshell has a file in workdir/ besides, local_nocreated's
	// meta.json says that it is a quarter of an hour old, and an archive
	// stays until its owner deletes it.
	"startup_cleanup": {order: []string{
		"local_young_81e6b01e", "local_nocreated_386c2eb6", "local_tmpshell_e111453e", "local_rootshell_fe9f3f9c",
		"local_workshell_a72304f5", "local_pinshell_aa70b959", "local_oldshell_87d34f9b", "local_keep_9692187d",
		"local_keep_9a66b653", "local_archrecent_43851e72", "local_archold_d6bbbfff", "local_oldactive_76ed6ebf",
	}},
	// meta.json says running where the registry says idle: meta.json wins,
	// and the process is dead.
	"crash_running": {
		order: []string{
			"local_archived_e75d8797", "local_metaonly_4b881be6", "local_st_inte_5a588e7a", "local_st_fail_b1df6bdb",
			"local_st_done_af12873d", "local_st_need_1de36b2b", "local_st_idle_6d86c7a4", "local_inner_c6a14e82",
			"local_nodeonly_d657bee0", "local_rowonly_ceea3853", "local_midturn_475c91ad",
		},
		status: map[string]string{
			"local_metaonly_4b881be6": "interrupted", "local_st_need_1de36b2b": "needs_input", "local_st_done_af12873d": "done",
			"local_st_fail_b1df6bdb": "failed", "local_nodeonly_d657bee0": "idle", "local_archived_e75d8797": "interrupted",
		},
	},
}

// checkStated compares the whole list with the written one.
func (c *check) checkStated() {
	want, ok := statedLists[c.want.Fixture]
	here := func(id string) bool { return c.disk.sessions[id] != nil }
	if !ok || c.custom || !slices.ContainsFunc(want.order, here) {
		return // another store, whatever its name
	}
	rows := c.list(store.ListQuery{IncludeArchived: true})
	var order, rest []string
	for _, row := range rows {
		id := row["id"].(string)
		if slices.Contains(want.somewhere, id) {
			rest = append(rest, id)
			continue
		}
		order = append(order, id)
		if status := want.status[id]; status != "" {
			c.y.check("status of "+id+" in the list", row["status"], any(status))
		}
	}
	c.y.check("the stated list, in order", order, want.order)
	slices.Sort(rest)
	c.y.check("the stated list, wherever", strings.Join(rest, " "), strings.Join(slices.Sorted(slices.Values(want.somewhere)), " "))
}
