package ipcmessage

import "github.com/klauspost/compress/zstd"

// maxWindow is the largest window of a frame of zstd whose contents are smaller than it: four times that which
// decompressors have to take at least, by RFC 8878, and which encoders keep to below level 20.
const maxWindow = 32 << 20

// window returns the largest window of frames of zstd, or their contents where a frame has no window: so much memory
// a decompressor allocates, regardless of the contents. It reads nothing after an error.
func window(frames []byte) (largest uint64) {
	for {
		var h zstd.Header
		blocks, err := h.DecodeAndStrip(frames)
		if err != nil {
			return largest
		}
		if h.Skippable {
			// mutant: frames = blocks
			frames = behind(blocks, int(h.SkippableSize))
			continue
		}
		if h.SingleSegment {
			// mutant: h.WindowSize = 0
			h.WindowSize = h.FrameContentSize
		}
		largest = max(largest, h.WindowSize)
		frames = behindBlocks(blocks)
		if h.HasCheckSum {
			frames = behind(frames, 4) // mutant: deleted
		}
	}
}

// behindBlocks returns the bytes after the blocks of a frame.
func behindBlocks(b []byte) []byte {
	const repeated, reserved = 1, 3
	for len(b) >= 3 {
		header := int(b[0]) | int(b[1])<<8 | int(b[2])<<16
		last, kind, size := header&1 != 0, header>>1&3, header>>3
		switch kind {
		case repeated:
			size = 1 // mutant: deleted
		case reserved:
			return nil
		}
		if b = behind(b[3:], size); last {
			return b
		}
	}
	return nil
}

func behind(b []byte, n int) []byte { return b[min(n, len(b)):] }
