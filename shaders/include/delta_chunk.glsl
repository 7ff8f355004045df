// What the two kernels of the chunked delta rule share (src/kernels/delta_chunk.rs): sizes, and the scratch memory
// between them. Needs recurrent.glsl and tile.glsl.

const uint C = 64;                // tokens of a block
const uint TOKEN_TILES = C / TILE;
const uint CHANNEL_TILES = D / TILE;
const uint LOWER_TILES = TOKEN_TILES * (TOKEN_TILES + 1) / 2; // tiles of a lower triangle

// For each block and value head, in tiles of contiguous rows: three matrices [C][D] in rows of tiles, then two
// lower triangles.
const uint KEYS_RISEN = 0;                        // -e^G k
const uint QUERIES_RISEN = KEYS_RISEN + C * D;    // e^G q
const uint KEYS_FALLING = QUERIES_RISEN + C * D;  // e^(G_C - G) k
const uint SOLUTION = KEYS_FALLING + C * D;       // (I + M)^-1 diag(beta)
const uint SCORES = SOLUTION + LOWER_TILES * TILE_SIZE; // (Q K^T) o D
const uint UNIT = SCORES + LOWER_TILES * TILE_SIZE;

// The place of a tile in a lower triangle, column <= row.
uint lower(const uint row, const uint column) {
    return row * (row + 1) / 2 + column;
}
