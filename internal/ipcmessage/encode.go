package ipcmessage

import "encoding/binary"

// Positions in the message of a record batch that AppendRecordBatch makes, and sizes of an element.
const (
	atBodyLength = 24
	atRows       = 56
	atToBuffers  = 68
	atNodeCount  = 76
	recordPrefix = 80
	pairSize     = 16
)

// recordMessage is a message of a record batch up to its nodes.
var recordMessage = [recordPrefix]byte{
	16, 0, 0, 0, // 0: where the message is
	12, 0, 24, 0, 16, 0, 18, 0, 4, 0, 8, 0, // 4: its fields: the version, the type, the header, the size of the body
	12, 0, 0, 0, // 16: where its fields are described
	32, 0, 0, 0, // 20: the header
	0, 0, 0, 0, 0, 0, 0, 0, // 24: the size of the body
	metadataV5, 0, byte(RecordBatch), 0, 0, 0, 0, 0, // 32: the version, the type
	10, 0, 20, 0, 4, 0, 12, 0, 16, 0, 0, 0, // 40: the fields of the batch: its length, the nodes, the buffers
	12, 0, 0, 0, // 52: where they are described
	0, 0, 0, 0, 0, 0, 0, 0, // 56: the length
	12, 0, 0, 0, // 64: the nodes
	0, 0, 0, 0, // 68: the buffers
	0, 0, 0, 0, // 72
	0, 0, 0, 0, // 76: the number of nodes
}

// AppendRecordBatch appends the metadata of a record batch that is not compressed, whose arrays have no variadic buffers.
// nodes and buffers are pairs, as those of a [Batch].
func AppendRecordBatch(b []byte, rows, bodyLength int64, nodes, buffers []int64) []byte {
	start := len(b)
	b = append(b, recordMessage[:]...)
	binary.LittleEndian.PutUint64(b[start+atBodyLength:], uint64(bodyLength))
	binary.LittleEndian.PutUint64(b[start+atRows:], uint64(rows))
	binary.LittleEndian.PutUint32(b[start+atNodeCount:], uint32(len(nodes)/2))
	b = appendWords(b, nodes)
	b = binary.LittleEndian.AppendUint32(b, 0) // numbers of 64 bits begin at multiples of 8
	binary.LittleEndian.PutUint32(b[start+atToBuffers:], uint32(len(b)-start-atToBuffers))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(buffers)/2))
	return appendWords(b, buffers)
}

// RecordBatchSize returns the size of the metadata that AppendRecordBatch appends.
func RecordBatchSize(nodes, buffers int) int {
	return recordPrefix + pairSize*nodes + 8 + pairSize*buffers
}

func appendWords(b []byte, words []int64) []byte {
	for _, w := range words {
		b = binary.LittleEndian.AppendUint64(b, uint64(w))
	}
	return b
}
