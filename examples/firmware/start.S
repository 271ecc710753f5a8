# Sets the stack up, copies what is initialized, clears the rest, and calls main.
    .section .start, "ax"
    .global _start
_start:
    la sp, stack_top
    la a0, data_start
    la a1, data_end
    la a2, data_source
1:  bgeu a0, a1, 2f
    lw t0, 0(a2)
    sw t0, 0(a0)
    addi a0, a0, 4
    addi a2, a2, 4
    j 1b
2:  la a0, bss_start
    la a1, bss_end
3:  bgeu a0, a1, 4f
    sw zero, 0(a0)
    addi a0, a0, 4
    j 3b
4:  call main
5:  j 5b
