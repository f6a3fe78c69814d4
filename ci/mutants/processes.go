package main

// processExtras are the mutants of the packages that other processes are at the other end of: what waits there is
// seldom a call that find.go knows.
var processExtras = []extra{
	{
		"internal/gpu/flush.go", "Deferred.Flush", "functions of RegisterMemory",
		"for range 3 {", "for range 2 {",
	},
	{
		"internal/gpu/trim.go", "GPU.Trim", "a failure before Trim waits for it",
		"\tif err := failed(); err != nil {\n\t\treturn err\n\t}\n", "\t_ = failed\n",
	},
	{
		"internal/gpu/memory.go", "Memory.ended", "a registered range is page-locked no more",
		"\t\tm.heap.locked.remove(m.ptr)\n", "",
	},
	{
		"internal/gpu/memory.go", "Memory.waits", "registered memory gives nothing back",
		"if m.foreign || m.use == &m.heap.registered {\n\t\treturn 0", "if m.use == nil {\n\t\treturn 0",
	},
	{
		"share/share.go", "Shared.unlock", "the batch is held while openers have it",
		"last := s.left == 0 && s.open == 0 && !s.ended", "last := s.left == 0 && !s.ended",
	},
	{
		"share/share.go", "Shared.unlock", "the batch is held while its ticket can be opened",
		"last := s.left == 0 && s.open == 0 && !s.ended", "last := s.open == 0 && !s.ended",
	},
	{
		"share/share.go", "Shared.unlock", "the batch is released",
		"_ = s.held.release()", "_ = s.held",
	},
	{
		"share/share.go", "Shared.leave", "an opening that failed is given back",
		"if failed && !s.closed {", "if failed && s.left < 0 {",
	},
	{
		"share/share.go", "Shared.admit", "the digest of the ticket",
		"case s.ticket.digest() != digest:", "case s.ticket == nil:",
	},
	{
		"share/source.go", "source.release", "the event of the ticket is closed",
		"return s.event.Close()", "return nil",
	},
	{
		"share/owner_linux.go", "ownerList.serve", "the death of an opener is waited for",
		"awaitDeath(conn, pid)\n\t}", "_ = pid\n\t}",
	},
	{
		"share/owner_linux.go", "ownerList.serve", "a stranger that is known makes room",
		"s := o.greet(conn)\n\t<-o.strangers", "s := o.greet(conn)",
	},
	{
		"share/owner_linux.go", "ownerList.greet", "the time of strangers",
		"_ = conn.SetDeadline(time.Now().Add(limit))\n", "_ = limit\n",
	},
	{
		"share/owner_linux.go", "ownerList.greet", "many strangers have little time",
		"if len(o.strangers) > maxStrangers/2 {", "if limit < hurry {",
	},
	{
		"share/owner_linux.go", "ownerList.greet", "the end of that time for openers",
		"_ = conn.SetDeadline(time.Time{})\n\treturn s\n", "return s\n",
	},
	{
		"share/owner_linux.go", "ownerList.accept", "the user of an opener",
		"if err != nil || !sameUser(peer) {", "if err != nil {",
	},
	{
		"share/connection_linux.go", "connect", "the user of an owner",
		"err != nil || !sameUser(peer) { // which", "err != nil || peer == nil { // which",
	},
	{
		"share/peer_linux.go", "sameUser", "the user that stands for others",
		" && int64(peer.Uid) != overflowUser()", "",
	},
	{
		"share/connection_linux.go", "connection.end", "the files of an opening that failed",
		"\tc.closeFiles()\n", "",
	},
	{
		"share/connection_linux.go", "connection.watch", "an owner that ends after the batch is not gone",
		"if !c.ended.Load() {", "if c.files == nil {",
	},
	{
		"share/memfd_linux.go", "mapFile", "the seals of a file",
		"if has&seals != seals {", "if has < 0 {",
	},
	{
		"share/memfd_linux.go", "mapFile", "the size of a file",
		"if info.Size < size {", "if info.Size < 0 {",
	},
	{
		"share/memfd_linux.go", "newBlock", "openers cannot write",
		"seals|unix.F_SEAL_FUTURE_WRITE|unix.F_SEAL_SEAL", "seals|unix.F_SEAL_SEAL",
	},
	{
		"share/open.go", "content.checkOwner", "the network namespace of the owner",
		"c.network != 0 && network != 0 && c.network != network", "network < 0",
	},
	{
		"share/open.go", "content.checkOwner", "the name of the socket",
		"if !isSocketName(c.socket) {", "if c.socket == \"\" {",
	},
	{
		"share/ticket.go", "content.readSchema", "the schema is checked",
		"ipcmessage.CheckSchema(c.encoded); err != nil {", "ipcmessage.CheckSchema(c.encoded); err != nil && c.encoded == nil {",
	},
	{
		"share/decoder.go", "listOf", "the memory that a ticket takes",
		"List[T](message, n, &d.budget)\n\td.check(err)", "List[T](message, n, &d.budget)\n\t_ = err",
	},
	{
		"share/open.go", "opened.openUntil", "what is opened too late is closed",
		"<-done\n\t\t\tm.close()", "<-done",
	},
	{
		"share/open.go", "opened.open", "files are closed once they are mapped",
		"\tm.conn.closeFiles()\n", "",
	},
	{
		"share/open.go", "opened.close", "the event of an opening that failed",
		"_ = m.event.Close()", "_ = m.event",
	},
	{
		"share/open.go", "opened.close", "mappings end",
		"for _, file := range m.mappings {\n\t\tfile.end()", "for _, file := range m.mappings {\n\t\t_ = file",
	},
	{
		"share/open.go", "opened.close", "memory of the driver ends",
		"_ = mem.FreeAfter(nil)", "_ = mem",
	},
	{
		"share/open.go", "opened.keep", "a mapping that cannot be page-locked ends",
		"\t\tfile.end()\n\t\treturn fmt.Errorf(\"page-lock", "\t\treturn fmt.Errorf(\"page-lock",
	},
	{
		"share/open.go", "opened.keep", "a mapping is page-locked as read-only",
		"int64(len(file)), true,", "int64(len(file)), false,",
	},
	{
		"share/open.go", "opened.keep", "a mapping ends when it is unlocked",
		"\t\tfile.end()\n\t\tm.ended()", "\t\tm.ended()",
	},
	{
		"share/open.go", "opened.openRegion", "the owner is told after the memory is closed",
		"*r.handle, r.size, m.ended)\n", "*r.handle, r.size, nil)\n\tif err == nil {\n\t\tdefer m.ended()\n\t}\n",
	},
	{
		"share/open.go", "opened.choose", "a GPU that cannot page-lock what is read-only",
		"if !can {", "if !can && m.gpu != nil {",
	},
	{
		"share/allocator.go", "Allocator.newBlock", "page-locked memory ends when it is unlocked",
		"bytes, false, b.unlocked)\n", "bytes, false, nil)\n\tif err == nil {\n\t\tb.unlocked()\n\t}\n",
	},
	{
		"share/allocator.go", "Allocator.newBlock", "memory that cannot be page-locked ends",
		"\t\tb.end()\n\t\ta.room.give(bytes)\n\t\treturn nil, fmt.Errorf(\"page-lock", "\t\ta.room.give(bytes)\n\t\treturn nil, fmt.Errorf(\"page-lock",
	},
	{
		"share/room.go", "room.tryTake", "freed memory that is locked counts",
		"if r.limit <= 0 || bytes <= r.limit-r.used {", "if r.limit <= 0 || r.used-r.leaving+bytes <= r.limit {",
	},
	{
		"share/room.go", "room.take", "an allocation waits for freed memory",
		"case <-changed:\n\t\t\ttimer.Stop()", "case <-changed:\n\t\t\treturn err",
	},
	{
		"interop/triton/outputs.go", "Outputs.tryClaim", "a request waits for batches",
		"case o.batches > 0:", "case o.batches > 0 && o.busy:",
	},
	{
		"interop/triton/outputs.go", "Outputs.claim", "a request that has waited claims the outputs",
		"case <-freed:\n", "case <-freed:\n\t\t\treturn nil\n",
	},
	{
		"interop/triton/outputs.go", "Outputs.tryClaim", "outputs are of one request",
		"case o.busy:", "case o.busy && o.unknown:",
	},
	{
		"interop/triton/outputs.go", "Outputs.tryClaim", "outputs that the server may write to",
		"case o.unknown:", "case o.unknown && o.busy:",
	},
	{
		"interop/triton/outputs.go", "Outputs.Batch", "a batch holds the region",
		"if err := o.region.hold(); err != nil {\n\t\treturn nil, err\n\t}\n\to.mu", "o.mu",
	},
	{
		"interop/triton/outputs.go", "Outputs.released", "a batch lets go of the region",
		"\to.region.drop()\n", "",
	},
	{
		"interop/triton/region.go", "Region.drop", "the memory ends with its last user",
		"last := r.users == 0", "last := r.users >= 0",
	},
	{
		"interop/triton/region.go", "Region.Close", "the region is dropped once",
		"if !again {", "if !again || r.users > 0 {",
	},
	{
		"interop/triton/client.go", "Client.Register", "the region is held during the call",
		"if err := r.hold(); err != nil {\n\t\treturn err\n\t}\n\tdefer r.drop()\n", "",
	},
	{
		"interop/triton/client.go", "Client.Unregister", "requests in flight",
		"if err := c.drain(ctx, r); err != nil {\n\t\treturn err\n\t}\n", "",
	},
	{
		"interop/triton/client.go", "Client.Unregister", "the server has closed the region",
		"if err := c.awaitClosed(ctx, r); err != nil {\n\t\treturn err\n\t}\n", "",
	},
	{
		"flight/send.go", "sender.write", "a batch that was sent is released",
		"\tdefer rec.Release()\n\ts.wrote = true", "\ts.wrote = true",
	},
	{
		"flight/send.go", "ahead", "a batch that nobody takes is released",
		"case <-ctx.Done():\n\t\t\th.release()\n", "case <-ctx.Done():\n",
	},
	{
		"flight/send.go", "sender.WritePayload", "the size of a message",
		"if m.size > s.max {", "if m.size < 0 {",
	},
	{
		"flight/receive.go", "receiver.next", "the end of the context ends the stream",
		"context.AfterFunc(ctx, r.end)", "context.AfterFunc(ctx, func() {})",
	},
	{
		"flight/receive.go", "receiver.batch", "the batch on the host is released",
		"\tdefer host.Release()\n", "",
	},
	{
		"flight/receive.go", "receiver.stop", "the last release ends the stream",
		"\tr.finish()\n\tr.end()\n}", "\tr.finish()\n}",
	},
	{
		"flight/receive.go", "receiver.finish", "what reading has left behind",
		"r.messages.mem.failed()", "_ = r.messages.mem",
	},
	{
		"flight/messages.go", "messages.receive", "the size of a body",
		"n > m.max {", "n < 0 {",
	},
	{
		"flight/messages.go", "messages.message", "metadata is checked",
		"\tif err != nil {\n\t\treturn nil, refused(err)", "\tif err != nil && body == nil {\n\t\treturn nil, refused(err)",
	},
	{
		"flight/wire.go", "incoming.take", "a body that was sent twice",
		"\t\tm.mem.Free(m.body)\n", "",
	},
	{
		"flight/dictionary.go", "ownDictionaries", "dictionaries of the children",
		"children[i] = ownDictionaries(child)\n\t\tdefer children[i].Release()", "children[i] = child",
	},
	{
		"flight/dictionary.go", "ownDictionaries", "a dictionary itself",
		"if values == arrow.ArrayData(d) {", "if values == nil {",
	},
	{
		"flight/dictionary.go", "ownDictionaries", "dictionaries of a dictionary's values",
		"values := ownDictionaries(d)", "d.Retain()\n\t\tvalues := arrow.ArrayData(d)",
	},
	{
		"internal/ipcmessage/batch.go", "readBatch", "windows of zstd",
		"b.zstd = codec == 1", "b.zstd = codec > 1",
	},
	{
		"internal/ipcmessage/zstd.go", "window", "the checksum of a frame",
		"frames = behind(frames, 4)", "_ = 4",
	},
	{
		"internal/ipcmessage/zstd.go", "window", "frames that are skipped",
		"frames = behind(blocks, int(h.SkippableSize))", "frames = blocks",
	},
	{
		"internal/ipcmessage/zstd.go", "window", "contents of one segment",
		"h.WindowSize = h.FrameContentSize", "h.WindowSize = 0",
	},
	{
		"internal/ipcmessage/zstd.go", "behindBlocks", "blocks of one byte that is repeated",
		"\t\t\tsize = 1\n", "",
	},
	{
		"internal/ipcmessage/batch.go", "batch.checkBuffers", "the total of decompressed sizes",
		" || total > limit", "",
	},
	{
		"flight/endpoints.go", "merged.put", "a batch that nobody takes is released",
		"\t\tit.drop()\n\t\treturn false", "\t\treturn false",
	},
	{
		"flight/endpoints.go", "merged.stop", "batches that are ready are dropped after the calls",
		"m.running.Wait()", "_ = &m.running",
	},
	{
		"flight/endpoints.go", "merged.start", "as many calls at once as WithParallel says",
		"min(m.o.parallel, len(m.endpoints))", "len(m.endpoints)",
	},
	{
		"interop/triton/outputs.go", "Outputs.unclaim", "outputs that may still be written to",
		"o.busy, o.unknown = false, !known", "o.busy, o.unknown = false, false",
	},
	{
		"interop/triton/outputs.go", "Outputs.Batch", "a batch of outputs holds the region",
		"if err := o.region.hold(); err != nil {", "if err := error(nil); err != nil {",
	},
	{
		"share/open.go", "content.checkOwner", "a ticket of another machine",
		"if c.boot != here {", "if c.boot == \"\" {",
	},
	{
		"share/open.go", "content.checkOwner", "a ticket of this process",
		"if c.process == thisProcess {", "if c.process == (id{}) {",
	},
	{
		"flight/endpoints.go", "merged.stop", "batches that are ready",
		"for len(lane) > 0 {", "for len(lane) > 1<<20 {",
	},
	{
		"internal/ipcmessage/checker.go", "Checker.Check", "the size of a body",
		"if size < 0 || size > int64(len(body)) {", "if size < -1<<62 {",
	},
	{
		"internal/ipcmessage/batch.go", "batch.checkNodes", "nulls of a node",
		"case length < 0 || nulls < 0 || nulls > length:", "case length < 0:",
	},
	{
		"internal/ipcmessage/batch.go", "batch.checkBuffers", "buffers in the body",
		"case offset < 0 || length < 0 || offset > int64(len(body)) || length > int64(len(body))-offset:", "case offset < 0 || length < 0:",
	},
	{
		"internal/ipcmessage/batch.go", "batch.checkBuffers", "sizes of compressed buffers",
		"total += max(size, 0); size < -1 || size > limit || total > limit {", "total += max(size, 0); size < -1<<62 {",
	},
	{
		"flight/localpeer.go", "localPeerOf", "another machine, network or user",
		"!hmac.Equal([]byte(words[1]), []byte(proof(\"process\", words[0], to)))", "to == words[0]",
	},
	{
		"flight/localpeer.go", "localPeerOf", "this process",
		"words[0] == process() || ", "",
	},
	{
		"flight/localpeer.go", "localPeer.opens", "GPUs that the other end opens",
		"return err == nil && slices.Contains(n.gpus, proofOfGPU(n.process, uuid))", "return err == nil && slices.Index(n.gpus, proofOfGPU(n.process, uuid)) >= -1",
	},
	{
		"flight/localpeer.go", "introducing.GetRequestMetadata", "a client tells those of this machine only",
		"if staysHere(ctx) {", "if staysHere(ctx) || md != nil {",
	},
	{
		"flight/localpeer.go", "caller", "a server tells those of this machine only",
		"if !staysHere(ctx) {", "if ctx == nil {",
	},
	{
		"flight/localpeer.go", "options.answering", "the server's answer",
		"server.SendHeader(metadata.Pairs(sharingHeader, o.introduction(client.process))) == nil", "server != nil",
	},
	{
		"flight/localpeer.go", "otherEnd.local", "the wait for the answer",
		"case <-e.answered:\n\t\tcase <-timer.C:", "default:",
	},
	{
		"flight/localpeer.go", "otherEnd.local", "the end of that wait",
		"case <-timer.C:\n", "",
	},
	{
		"flight/tickets.go", "options.parcel", "the size of a ticket",
		"if sizeOf(fieldAppMetadata, len(data)) > o.maxSend() {", "if sizeOf(fieldAppMetadata, len(data)) < 0 {",
	},
	{
		"flight/tickets.go", "options.parcel", "a ticket that is not sent is withdrawn",
		"_ = shared.Close()\n\t\treturn nil", "return nil",
	},
	{
		"flight/tickets.go", "issued.await", "tickets are opened before the sender ends",
		"(*i)[0].WaitOpened(ctx)", "error(nil)",
	},
	{
		"flight/tickets.go", "issued.close", "tickets that were not opened are withdrawn",
		"\tfor _, s := range *i {\n\t\t_ = s.Close()\n\t}\n", "",
	},
	{
		"flight/tickets.go", "sender.ticket", "so many tickets at once",
		"max(o.prefetch, 1)", "1<<30",
	},
	{
		"flight/tickets.go", "messages.ticketOf", "the mark of a ticket",
		"!bytes.HasPrefix(in.AppMetadata, []byte(m.mark))", "!bytes.HasPrefix(in.AppMetadata, nil) || len(in.AppMetadata) < len(m.mark)",
	},
	{
		"flight/tickets.go", "receiver.open", "the schema of a ticket",
		"if !b.Schema().Equal(r.schema) {", "if b.Schema() == nil {",
	},
	{
		"flight/client.go", "DoPut", "a server that returns before the end",
		" && !overtaken(ctx, stream, err)", "",
	},
	{
		"internal/ipcmessage/batch.go", "Checker.batch", "the lengths of columns",
		"length != b.rows {", "length < 0 {",
	},
	{
		"internal/ipcmessage/dictionary.go", "Checker.grow", "the size of dictionaries",
		"if total > c.max {", "if total < 0 {",
	},
	{
		"flight/messages.go", "messages.message", "dictionaries are on the heap",
		"m.mem.heap = dictionary || m.check.Deltas()", "m.mem.heap = false",
	},
	{
		"flight/send.go", "sender.write", "panics of arrow-go's writer",
		"return guarded(\"arrow-go's IPC writer\", func() error { return s.parts(w, rest) })", "return s.parts(w, rest)",
	},
}
