// What an ECP5's block RAM does, as far as Yosys uses it for memories of one clock: Yosys has no
// model of it. After Lattice's memory usage guide for ECP5 (FPGA-TN-02204): port A reads and
// writes, port B reads; or, 36 bits wide, A writes and B reads. A row of 36 bits is four bytes of
// nine, of which widths below nine use eight. After Lattice's model of ECP3's block RAM (DP16KC), an
// output register's only enable is OCEA or OCEB, and of 36 bits B's clock and OCEB have both.
//
// What B reads of the bits that A writes in the same cycle is undefined; here it is inverted, so
// that nobody relies on it.
module DP16KD (
  input DIA17, DIA16, DIA15, DIA14, DIA13, DIA12, DIA11, DIA10, DIA9, DIA8, DIA7, DIA6, DIA5,
    DIA4, DIA3, DIA2, DIA1, DIA0,
  input ADA13, ADA12, ADA11, ADA10, ADA9, ADA8, ADA7, ADA6, ADA5, ADA4, ADA3, ADA2, ADA1, ADA0,
  input CEA, OCEA, CLKA, WEA, RSTA, CSA2, CSA1, CSA0,
  output DOA17, DOA16, DOA15, DOA14, DOA13, DOA12, DOA11, DOA10, DOA9, DOA8, DOA7, DOA6, DOA5,
    DOA4, DOA3, DOA2, DOA1, DOA0,
  input DIB17, DIB16, DIB15, DIB14, DIB13, DIB12, DIB11, DIB10, DIB9, DIB8, DIB7, DIB6, DIB5,
    DIB4, DIB3, DIB2, DIB1, DIB0,
  input ADB13, ADB12, ADB11, ADB10, ADB9, ADB8, ADB7, ADB6, ADB5, ADB4, ADB3, ADB2, ADB1, ADB0,
  input CEB, OCEB, CLKB, WEB, RSTB, CSB2, CSB1, CSB0,
  output DOB17, DOB16, DOB15, DOB14, DOB13, DOB12, DOB11, DOB10, DOB9, DOB8, DOB7, DOB6, DOB5,
    DOB4, DOB3, DOB2, DOB1, DOB0
);
  parameter DATA_WIDTH_A = 18;
  parameter DATA_WIDTH_B = 18;
  parameter REGMODE_A = "NOREG";
  parameter REGMODE_B = "NOREG";
  parameter RESETMODE = "SYNC";
  parameter ASYNC_RESET_RELEASE = "SYNC";
  parameter CSDECODE_A = "0b000";
  parameter CSDECODE_B = "0b000";
  parameter WRITEMODE_A = "NORMAL";
  parameter WRITEMODE_B = "NORMAL";
  parameter CLKAMUX = "CLKA";
  parameter CLKBMUX = "CLKB";
  parameter GSR = "AUTO";
  parameter [319:0] INITVAL_00 = 0, INITVAL_01 = 0, INITVAL_02 = 0, INITVAL_03 = 0, INITVAL_04 =
    0, INITVAL_05 = 0, INITVAL_06 = 0, INITVAL_07 = 0, INITVAL_08 = 0, INITVAL_09 = 0,
    INITVAL_0A = 0, INITVAL_0B = 0, INITVAL_0C = 0, INITVAL_0D = 0, INITVAL_0E = 0, INITVAL_0F =
    0, INITVAL_10 = 0, INITVAL_11 = 0, INITVAL_12 = 0, INITVAL_13 = 0, INITVAL_14 = 0,
    INITVAL_15 = 0, INITVAL_16 = 0, INITVAL_17 = 0, INITVAL_18 = 0, INITVAL_19 = 0, INITVAL_1A =
    0, INITVAL_1B = 0, INITVAL_1C = 0, INITVAL_1D = 0, INITVAL_1E = 0, INITVAL_1F = 0,
    INITVAL_20 = 0, INITVAL_21 = 0, INITVAL_22 = 0, INITVAL_23 = 0, INITVAL_24 = 0, INITVAL_25 =
    0, INITVAL_26 = 0, INITVAL_27 = 0, INITVAL_28 = 0, INITVAL_29 = 0, INITVAL_2A = 0,
    INITVAL_2B = 0, INITVAL_2C = 0, INITVAL_2D = 0, INITVAL_2E = 0, INITVAL_2F = 0, INITVAL_30 =
    0, INITVAL_31 = 0, INITVAL_32 = 0, INITVAL_33 = 0, INITVAL_34 = 0, INITVAL_35 = 0,
    INITVAL_36 = 0, INITVAL_37 = 0, INITVAL_38 = 0, INITVAL_39 = 0, INITVAL_3A = 0, INITVAL_3B =
    0, INITVAL_3C = 0, INITVAL_3D = 0, INITVAL_3E = 0, INITVAL_3F = 0;

  localparam [20479:0] INIT = {
    INITVAL_3F, INITVAL_3E, INITVAL_3D, INITVAL_3C, INITVAL_3B, INITVAL_3A, INITVAL_39,
    INITVAL_38, INITVAL_37, INITVAL_36, INITVAL_35, INITVAL_34, INITVAL_33, INITVAL_32,
    INITVAL_31, INITVAL_30, INITVAL_2F, INITVAL_2E, INITVAL_2D, INITVAL_2C, INITVAL_2B,
    INITVAL_2A, INITVAL_29, INITVAL_28, INITVAL_27, INITVAL_26, INITVAL_25, INITVAL_24,
    INITVAL_23, INITVAL_22, INITVAL_21, INITVAL_20, INITVAL_1F, INITVAL_1E, INITVAL_1D,
    INITVAL_1C, INITVAL_1B, INITVAL_1A, INITVAL_19, INITVAL_18, INITVAL_17, INITVAL_16,
    INITVAL_15, INITVAL_14, INITVAL_13, INITVAL_12, INITVAL_11, INITVAL_10, INITVAL_0F,
    INITVAL_0E, INITVAL_0D, INITVAL_0C, INITVAL_0B, INITVAL_0A, INITVAL_09, INITVAL_08,
    INITVAL_07, INITVAL_06, INITVAL_05, INITVAL_04, INITVAL_03, INITVAL_02, INITVAL_01,
    INITVAL_00
  };
  localparam REGISTERED = REGMODE_A != "NOREG" || REGMODE_B != "NOREG";
  reg [35:0] rows [0:511];
  reg [35:0] a_out = 0;
  reg [35:0] b_out = 0;
  reg [17:0] a_held = 0;
  reg [35:0] b_held = 0;
  wire [13:0] a_addr = {ADA13, ADA12, ADA11, ADA10, ADA9, ADA8, ADA7, ADA6, ADA5, ADA4, ADA3,
    ADA2, ADA1, ADA0};
  wire [13:0] b_addr = {ADB13, ADB12, ADB11, ADB10, ADB9, ADB8, ADB7, ADB6, ADB5, ADB4, ADB3,
    ADB2, ADB1, ADB0};
  wire [17:0] a_data = {DIA17, DIA16, DIA15, DIA14, DIA13, DIA12, DIA11, DIA10, DIA9, DIA8, DIA7,
    DIA6, DIA5, DIA4, DIA3, DIA2, DIA1, DIA0};
  wire [17:0] b_data = {DIB17, DIB16, DIB15, DIB14, DIB13, DIB12, DIB11, DIB10, DIB9, DIB8, DIB7,
    DIB6, DIB5, DIB4, DIB3, DIB2, DIB1, DIB0};
  wire [17:0] a_now = DATA_WIDTH_B == 36 ? b_out[17:0] : a_out[17:0];
  wire [17:0] b_now = DATA_WIDTH_B == 36 ? b_out[35:18] : b_out[17:0];
  wire [17:0] a_late = DATA_WIDTH_B == 36 ? b_held[17:0] : a_held;
  wire [17:0] b_late = DATA_WIDTH_B == 36 ? b_held[35:18] : b_held[17:0];
  assign {DOA17, DOA16, DOA15, DOA14, DOA13, DOA12, DOA11, DOA10, DOA9, DOA8, DOA7, DOA6, DOA5,
    DOA4, DOA3, DOA2, DOA1, DOA0} = REGMODE_A == "OUTREG" ? a_late : a_now;
  assign {DOB17, DOB16, DOB15, DOB14, DOB13, DOB12, DOB11, DOB10, DOB9, DOB8, DOB7, DOB6, DOB5,
    DOB4, DOB3, DOB2, DOB1, DOB0} = REGMODE_B == "OUTREG" ? b_late : b_now;

  // Where an access begins within its row.
  function [5:0] place(input integer width, input [4:0] addr);
    case (width)
      36: place = 0;
      18: place = 18 * addr[4];
      9: place = 9 * addr[4:3];
      4: place = 9 * addr[4:3] + 4 * addr[2];
      2: place = 9 * addr[4:3] + 2 * addr[2:1];
      default: place = 9 * addr[4:3] + addr[2:0];
    endcase
  endfunction

  // The bits of an access; of wide ones, lower bits of the address enable bytes.
  function [35:0] bits(input integer width, input [3:0] enable);
    case (width)
      36: bits = {{9{enable[3]}}, {9{enable[2]}}, {9{enable[1]}}, {9{enable[0]}}};
      18: bits = {18'b0, {9{enable[1]}}, {9{enable[0]}}};
      default: bits = (36'd1 << width) - 1;
    endcase
  endfunction

  wire [5:0] a_place = place(DATA_WIDTH_A, a_addr[4:0]);
  wire [5:0] b_place = place(DATA_WIDTH_B, b_addr[4:0]);
  wire writes = CEA && WEA;
  wire [35:0] mask = writes ? bits(DATA_WIDTH_A, a_addr[3:0]) << a_place : 36'd0;
  wire [35:0] given = {b_data, a_data} << a_place;
  wire [35:0] old = rows[a_addr[13:5]];
  wire [35:0] after = old & ~mask | given & mask;
  wire [35:0] seen = rows[b_addr[13:5]] ^ (a_addr[13:5] == b_addr[13:5] ? mask : 36'd0);

  always @(posedge CLKA) begin
    if (writes) rows[a_addr[13:5]] <= after;
    if (CEA && (!WEA || WRITEMODE_A == "READBEFOREWRITE")) a_out <= old >> a_place;
    if (writes && WRITEMODE_A == "WRITETHROUGH") a_out <= after >> a_place;
    if (RSTA) a_out <= 0;
    if (OCEA) a_held <= a_out[17:0];
  end
  always @(posedge CLKB) begin
    if (CEB) b_out <= seen >> b_place;
    if (RSTB) b_out <= 0;
    if (OCEB) b_held <= b_out;
`ifndef SYNTHESIS
    if (CEB && WEB || (RSTA || RSTB) && (RESETMODE != "SYNC" || REGISTERED)) begin
      $display("DP16KD: port B writes, or a reset that this model lacks");
      $finish;
    end
`endif
  end

  integer index;
  initial begin
    for (index = 0; index < 512; index = index + 1)
      rows[index] = {INIT[40 * index + 20 +: 18], INIT[40 * index +: 18]};
    if (REGMODE_A != "NOREG" && REGMODE_A != "OUTREG"
        || REGMODE_B != "NOREG" && REGMODE_B != "OUTREG"
        || CLKAMUX != "CLKA" || CLKBMUX != "CLKB") begin
      $display("DP16KD: a register or a mode that this model lacks");
      $finish;
    end
  end
endmodule
