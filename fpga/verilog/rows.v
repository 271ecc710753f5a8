// y * y_bit + x * x_bit, or y * y_bit - x * x_bit with MINUS: a table takes a bit of both rows.
module celosia_rows #(parameter WIDTH = 2, parameter MINUS = 0) (
  input [WIDTH-1:0] x, input x_bit, input [WIDTH-1:0] y, input y_bit, output [WIDTH-1:0] sum
);
  localparam PAIRS = (WIDTH + 1) / 2;
  // A carry is made of A and B alone, so what is subtracted stands there.
  localparam [15:0] TABLE = MINUS ? 16'h8777 : 16'h7888;
  wire [2*PAIRS-1:0] left = {x[WIDTH-1], x};
  wire [2*PAIRS-1:0] right = {y[WIDTH-1], y};
  wire [2*PAIRS-1:0] both;
  wire [PAIRS:0] carry;
  assign carry[0] = MINUS;
  assign sum = both;
  genvar i;
  generate for (i = 0; i < PAIRS; i = i + 1) begin : pair
    CCU2C #(.INIT0(TABLE), .INIT1(TABLE), .INJECT1_0("NO"), .INJECT1_1("NO")) tables (
      .CIN(carry[i]), .COUT(carry[i + 1]),
      .A0(left[2 * i]), .B0(x_bit), .C0(right[2 * i]), .D0(y_bit), .S0(both[2 * i]),
      .A1(left[2 * i + 1]), .B1(x_bit), .C1(right[2 * i + 1]), .D1(y_bit), .S1(both[2 * i + 1])
    );
  end endgenerate
endmodule
