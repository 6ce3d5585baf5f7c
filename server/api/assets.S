/* The files of assets.def, as they are; the assembler looks for them in its include folders. */
#define ASSET(symbol, file, type) \
    .globl asset_##symbol; \
    .globl asset_##symbol##_end; \
    asset_##symbol: .incbin file; \
    asset_##symbol##_end: .byte 0;

    .section .rodata
#include "server/api/assets.def"

    .section .note.GNU-stack, "", %progbits
