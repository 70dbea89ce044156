package main

// sampleSessions are the sessions of the sample store: a conversation with
// three branches, one with tool calls, one with an attachment, one in
// Chinese, and an archived one.
func sampleSessions() []sampleSession {
	return []sampleSession{sampleArchived(), sampleTools(), sampleAttachment(), sampleChinese(), sampleBranches()}
}

func sampleBranches() sampleSession {
	return sampleSession{
		id:    "local_demo",
		title: "Two days in Kyoto",
		messages: []sampleMessage{
			{ID: "4b1f0a72", Role: "user", Predecessor: "ROOT",
				Content: "I have two days in Kyoto in November. What should I not miss?"},
			{ID: "4b1f0a72_reply", Role: "assistant", Predecessor: "4b1f0a72",
				Content: "Day one: Fushimi Inari before eight in the morning, then the lanes of Higashiyama.\nDay two: Arashiyama, with the bamboo grove first and the river afterwards."},
			{ID: "c93d5e18", Role: "user", Predecessor: "4b1f0a72_reply",
				Content: "Where are the maple leaves at their best?"},
			{ID: "c93d5e18_reply", Role: "assistant", Predecessor: "c93d5e18",
				Content: "Tofuku-ji: from the wooden bridge you look down on a valley of maple trees. Go on a weekday."},
			{ID: "7e20b6f4", Role: "user", Predecessor: "4b1f0a72_reply",
				Content: "Where do I eat on the first evening?"},
			{ID: "7e20b6f4_reply", Role: "assistant", Predecessor: "7e20b6f4",
				Content: "Pontocho, the narrow lane by the river. Ask for yudofu if you like tofu."},
			{ID: "1d88a3c0", Role: "user", Predecessor: "4b1f0a72_reply", ForkedFrom: "c93d5e18",
				Content: "And if it rains?"},
			{ID: "1d88a3c0_reply", Role: "assistant", Predecessor: "1d88a3c0",
				Content: "Sanjusangen-do: a thousand statues under one long roof, and no umbrella needed."},
		},
		names: map[string]string{"c93d5e18_reply": "maples", "7e20b6f4_reply": "food"},
		head:  "c93d5e18_reply",
	}
}

func sampleTools() sampleSession {
	return sampleSession{
		id:    "local_tools",
		title: "Why is the build slow?",
		messages: []sampleMessage{
			{ID: "e5a1907b", Role: "user", Predecessor: "ROOT", Content: "The build takes nine minutes. Find out why."},
			{ID: "e5a1907b_reply", Role: "assistant", Predecessor: "e5a1907b",
				Content: "Eight of the nine minutes go into one step: the tests of the parser run one after another."},
			{ID: "e5a1907b_reply_t_call_1", Role: "tool", Predecessor: "e5a1907b_reply", Function: "shell",
				Content: "build   41s\nparser  486s\nlint    12s\n",
				Extra: &sampleExtra{ToolUse: sampleCall{Name: "shell", Caller: "e5a1907b_reply", CallID: "call_1",
					Arguments: map[string]string{"command": "make timings"}}}},
			{ID: "e5a1907b_reply_t_call_2", Role: "tool", Predecessor: "e5a1907b_reply", Function: "read_file",
				Content: "test-parser:\n\tgo test -p 1 -parallel 1 ./parser\n",
				Extra: &sampleExtra{ToolUse: sampleCall{Name: "read_file", Caller: "e5a1907b_reply", CallID: "call_2",
					Arguments: map[string]string{"path": "Makefile"}}}},
		},
	}
}

func sampleAttachment() sampleSession {
	return sampleSession{
		id:    "local_files",
		title: "Notes from the meeting",
		files: map[string]string{
			"minutes.txt": "Present: Ada, Grace, Linus\n1. The release moves to Friday.\n2. Grace writes the announcement.\n",
		},
		messages: []sampleMessage{
			{ID: "92fc4d36", Role: "user", Predecessor: "ROOT", Content: "Who has to do what?\n\n{minutes.txt}"},
			{ID: "92fc4d36_reply", Role: "assistant", Predecessor: "92fc4d36",
				Content: "Only one task is given to a person: Grace writes the announcement, before Friday."},
		},
	}
}

func sampleChinese() sampleSession {
	return sampleSession{
		id:    "local_zh",
		title: "京都红叶怎么看",
		messages: []sampleMessage{
			{ID: "b07e61d9", Role: "user", Predecessor: "ROOT", Content: "十一月下旬去京都，哪里的红叶最好看？"},
			{ID: "b07e61d9_reply", Role: "assistant", Predecessor: "b07e61d9",
				Content: "推荐东福寺的通天桥：桥下整片山谷都是枫树。\n请尽量在平日早上八点半开门时到。"},
		},
	}
}

func sampleArchived() sampleSession {
	return sampleSession{
		id:       "local_old",
		title:    "Names for the cat",
		archived: true,
		messages: []sampleMessage{
			{ID: "0ac7f5b2", Role: "user", Predecessor: "ROOT", Content: "Suggest a name for a grey cat."},
			{ID: "0ac7f5b2_reply", Role: "assistant", Predecessor: "0ac7f5b2", Content: "Pebble."},
		},
	}
}
